-- |
-- Description : Configurations for nginx, lighttpd and Apache, as good as we know how
--
-- A comparison is worth what its opponents' configurations are. Each server gets
-- one worker where it can do with one, no access log, a cache of open files or of file
-- metadata where it has one, connections that are never closed for age or number, and
-- room for 18,000 of them. Everything they write goes to a directory of their own. Pure.
module Weft.Bench.Http.Config
  ( Place (..),

    -- * nginx
    Sendfile (..),
    nginxConfig,

    -- * lighttpd
    lighttpdConfig,

    -- * Apache
    Mpm (..),
    apacheConfig,
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
    -- | Runs as root: nginx's worker would change to another user, which may not
    -- be allowed to read our temporary directory; Apache must be told another user.
    placeRunsAsRoot :: !Bool,
    -- | the most connections that will be open at a time
    placeConnections :: !Int,
    -- | the length of the listen queue, where the server can be told
    placeBacklog :: !Int
  }

-- | How nginx brings a file to a socket. sendfile is the usual choice; for a
-- page of a few hundred bytes reading it into a buffer, and sending it in one write
-- with the headers, is cheaper (by a fifth when this was written). A claim must
-- hold against both. With a pool of threads a file that is not in the operating system's
-- cache does not hold up the other connections.
data Sendfile
  = Sendfile
  | Copy
  | -- | sendfile, by a pool of threads
    Threads
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
           "  sendfile " ++ (if how == Copy then "off" else "on") ++ ";",
           "  aio " ++ (if how == Threads then "threads" else "off") ++ ";",
           "  tcp_nopush on;",
           "  tcp_nodelay on;",
           "  keepalive_timeout 3600s;",
           "  keepalive_requests 2000000000;",
           "  keepalive_time 24h;",
           "  reset_timedout_connection on;",
           "  open_file_cache max=5000 inactive=3600s;",
           "  open_file_cache_valid 3600s;",
           "  open_file_cache_min_uses 1;",
           "  server_tokens off;",
           "  client_body_temp_path " ++ own "body" ++ ";",
           "  proxy_temp_path " ++ own "proxy" ++ ";",
           "  fastcgi_temp_path " ++ own "fastcgi" ++ ";",
           "  uwsgi_temp_path " ++ own "uwsgi" ++ ";",
           "  scgi_temp_path " ++ own "scgi" ++ ";",
           "  server {",
           "    listen 127.0.0.1:" ++ show (placePort place) ++ " backlog=" ++ show (placeBacklog place) ++ ";",
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
      "server.listen-backlog = " ++ show (placeBacklog place),
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

-- | How Apache shares its work out: a thread for each connection, or for each request
-- (idle connections wait in one event loop), or a process for each connection.
data Mpm
  = Worker
  | Event
  | Prefork
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | A configuration for Apache, given the directory of its modules. A worker's threads
-- are all there from the start, one for each connection that will be open, in
-- processes of at most 500: started on demand they would come too late, one process in
-- the first second, two in the next. The event module does with 256 threads; its factor
-- says how many connections may wait. (It closes waiting connections when all of its
-- threads are busy: with 64 threads and as many active clients it closed all 5,000 idle
-- ones.) Of processes for one connection each there are 64: where a connection is for one request
-- more of them only take turns.
apacheConfig :: Mpm -> FilePath -> Place -> String
apacheConfig mpm modules place =
  unlines $
    [ "ServerRoot " ++ quoted (placeOwn place),
      "ServerName 127.0.0.1",
      "DefaultRuntimeDir " ++ quoted (placeOwn place),
      "PidFile " ++ quoted (placeOwn place ++ "/apache.pid"),
      "Mutex pthread",
      "Listen 127.0.0.1:" ++ show (placePort place),
      "ListenBacklog " ++ show (placeBacklog place),
      "LoadModule " ++ mpmName ++ "_module " ++ quoted (modules ++ "/mod_" ++ mpmName ++ ".so"),
      "<IfModule !mod_unixd.c>",
      "  LoadModule unixd_module " ++ quoted (modules ++ "/mod_unixd.so"),
      "</IfModule>",
      "LoadModule authz_core_module " ++ quoted (modules ++ "/mod_authz_core.so"),
      "LoadModule mime_module " ++ quoted (modules ++ "/mod_mime.so"),
      "TypesConfig /dev/null",
      "AddType text/html .html",
      "ErrorLog /dev/stderr",
      "LogLevel error",
      "ServerTokens Prod",
      "DocumentRoot " ++ quoted (placeRoot place),
      "<Directory " ++ quoted (placeRoot place) ++ ">",
      "  AllowOverride None",
      "  Options FollowSymLinks",
      "  Require all granted",
      "</Directory>",
      "EnableSendfile On",
      "KeepAlive On",
      "KeepAliveTimeout 3600",
      "MaxKeepAliveRequests 0",
      "Timeout 3600",
      "MaxConnectionsPerChild 0",
      "ServerLimit " ++ show processes,
      "StartServers " ++ show processes,
      "MaxRequestWorkers " ++ show (processes * threads)
    ]
      ++ case mpm of
        Prefork -> ["MinSpareServers 1", "MaxSpareServers " ++ show processes]
        _ ->
          [ "ThreadStackSize 262144",
            "ThreadLimit " ++ show threads,
            "ThreadsPerChild " ++ show threads,
            "MinSpareThreads 1",
            "MaxSpareThreads " ++ show (processes * threads)
          ]
      ++ ["AsyncRequestWorkerFactor 100" | mpm == Event]
      ++ concat [["User nobody", "Group #65534"] | placeRunsAsRoot place]
  where
    mpmName = case mpm of Worker -> "mpm_worker"; Event -> "mpm_event"; Prefork -> "mpm_prefork"
    (processes, threads) = case mpm of
      Event -> (1, 256)
      Prefork -> (64, 1)
      Worker
        | wanted <= 500 -> (1, wanted)
        | otherwise -> ((wanted + 499) `div` 500, 500)
    wanted = placeConnections place + 16 :: Int

-- All these configuration languages quote alike; a path of ours has neither quotes
-- nor dollar signs, which they treat differently.
quoted :: FilePath -> String
quoted path = "\"" ++ path ++ "\""
