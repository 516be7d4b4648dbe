-- |
-- Module      : Weft.Bench.Http.Config
-- Description : Configurations for nginx and lighttpd, as good as we know how
--
-- A comparison is worth what its opponents' configurations are. Both servers get
-- one worker, no access log, a cache of open files or of file metadata,
-- connections that are never closed for age or number, and room for 18,000 of them.
-- Everything they write goes to a directory of their own. Pure.
module Weft.Bench.Http.Config
  ( Place (..),
    Sendfile (..),
    nginxConfig,
    lighttpdConfig,
  )
where

-- | Where a server lives.
data Place = Place
  { -- | on 127.0.0.1
    placePort :: !Int,
    -- | the site
    placeRoot :: !FilePath,
    -- | for what the server writes
    placeOwn :: !FilePath,
    -- | Runs as root: nginx's worker would change to another user, who may not
    -- be allowed to read our temporary directory.
    placeRunsAsRoot :: !Bool
  }

-- | How nginx brings a file to a socket. sendfile is what everybody deploys; for a
-- page of a few hundred bytes reading it into a buffer, and sending it in one write
-- with the headers, is cheaper (by a fifth when this was written). A claim must
-- hold against both.
data Sendfile
  = Sendfile
  | Copy
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | A configuration for nginx. The descriptors a worker needs (a connection, an
-- open file) stay below 20,000.
nginxConfig :: Sendfile -> Place -> String
nginxConfig how place =
  unlines $
    ["user root;" | placeRunsAsRoot place]
      ++ [ "daemon off;",
           "worker_processes 1;",
           "worker_rlimit_nofile 20000;",
           "pid " ++ own "nginx.pid" ++ ";",
           "error_log stderr error;",
           "events {",
           "  use epoll;",
           "  worker_connections 20000;",
           "  multi_accept on;",
           "}",
           "http {",
           "  types { text/html html; }",
           "  access_log off;",
           "  sendfile " ++ (case how of Sendfile -> "on"; Copy -> "off") ++ ";",
           "  tcp_nopush on;",
           "  tcp_nodelay on;",
           "  keepalive_timeout 3600s;",
           "  keepalive_requests 2000000000;",
           "  keepalive_time 24h;",
           "  reset_timedout_connection on;",
           "  open_file_cache max=1000 inactive=3600s;",
           "  open_file_cache_valid 3600s;",
           "  open_file_cache_min_uses 1;",
           "  server_tokens off;",
           "  client_body_temp_path " ++ own "body" ++ ";",
           "  proxy_temp_path " ++ own "proxy" ++ ";",
           "  fastcgi_temp_path " ++ own "fastcgi" ++ ";",
           "  uwsgi_temp_path " ++ own "uwsgi" ++ ";",
           "  scgi_temp_path " ++ own "scgi" ++ ";",
           "  server {",
           "    listen 127.0.0.1:" ++ show (placePort place) ++ " backlog=4096;",
           "    root " ++ quoted (placeRoot place) ++ ";",
           "  }",
           "}"
         ]
  where
    own name = quoted (placeOwn place ++ "/" ++ name)

-- | A configuration for lighttpd. It reckons with two descriptors for a
-- connection: under a limit of 20,000 it accepts 10,000 and lets others wait, so
-- it has no figure beside 15,000 idle ones. Its counter of requests on a connection has 16
-- bits, so after 65,535 of them it closes one; wrk opens it again.
lighttpdConfig :: Place -> String
lighttpdConfig place =
  unlines
    [ "server.document-root = " ++ quoted (placeRoot place),
      "server.bind = \"127.0.0.1\"",
      "server.port = " ++ show (placePort place),
      "server.listen-backlog = 4096",
      "server.pid-file = " ++ quoted (placeOwn place ++ "/lighttpd.pid"),
      "server.upload-dirs = ( " ++ quoted (placeOwn place) ++ " )",
      "server.event-handler = \"linux-sysepoll\"",
      "server.network-backend = \"sendfile\"",
      "server.max-worker = 0",
      "server.max-fds = 20000",
      "server.max-connections = 18000",
      "server.max-keep-alive-requests = 65535",
      "server.max-keep-alive-idle = 3600",
      "server.max-read-idle = 3600",
      "server.max-write-idle = 3600",
      "server.stat-cache-engine = \"simple\"",
      "mimetype.assign = ( \".html\" => \"text/html\" )"
    ]

-- Both configuration languages quote alike; a path of ours has neither quotes
-- nor dollar signs, which they treat differently.
quoted :: FilePath -> String
quoted path = "\"" ++ path ++ "\""
