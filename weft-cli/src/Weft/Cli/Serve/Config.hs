-- |
-- Description : What weft serve can be told
--
-- The configuration of the service as data, with its defaults. The command line and
-- configuration files are two ways to change it; "Weft.Cli.Serve.Keys" says what is
-- called how in files.
module Weft.Cli.Serve.Config
  ( Config (..),
    defaultConfig,
    ServerConfig (..),
    LogConfig (..),
    TlsConfig (..),
    MetricsConfig (..),
    Endpoint (..),
    overloadOf,
    rateOf,
    NamedFile (..),

    -- * Sites
    Site (..),
    defaultSite,
    staticOf,
    everySite,
    siteNamed,
    reachable,

    -- * Hosts
    HostsConfig (..),
    defaultSiteName,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Data.List (nub)
import Data.Maybe (fromMaybe, isJust)
import Weft (BackendChoice (Auto), Duration, seconds)
import Weft.Http.AccessLog (LogFormat (Combined))
import Weft.Http.Compress
import Weft.Http.Hosts
import Weft.Http.Negotiation
import Weft.Http.Proxy (Network)
import Weft.Http.Server
import Weft.Http.Static

-- | Everything.
data Config = Config
  { configServer :: !ServerConfig,
    configTimeouts :: !Timeouts,
    configLimits :: !Limits,
    configLog :: !LogConfig,
    configTls :: !TlsConfig,
    configMetrics :: !MetricsConfig,
    -- | The site of all hosts that have no other, and what the others begin with.
    configSite :: !Site,
    -- | More sites, by name.
    configSites :: ![(String, Site)],
    configHosts :: !HostsConfig
  }

-- | Where and how the service runs.
data ServerConfig = ServerConfig
  { -- | Default: every address.
    confHost :: !(Maybe String),
    -- | Default 8080; 0 is any free one.
    confPort :: !Int,
    -- | Default: one for each processor.
    confWorkers :: !(Maybe Int),
    confBackend :: !BackendChoice,
    -- | Default: what the limit of open files allows, less 256.
    confMaxConnections :: !(Maybe Int),
    -- | Whether more than that are refused with 503, and do not wait; default 'False'.
    confRefuses :: !Bool,
    -- | What they are told then: when to come again, in seconds; default 1.
    confRetryAfter :: !Int,
    -- | Connections of one client; default 0: any number.
    confMaxPerClient :: !Int,
    -- | Requests of one connection; default 0: any number.
    confMaxRequests :: !Int,
    -- | Octets of a request body; default 64 MiB.
    confMaxBody :: !Int64,
    -- | Octets a second with which a request body must come; default 240, 0 for none.
    confMinBodyRate :: !Int64,
    -- | The same with which a client must take a response.
    confMinResponseRate :: !Int64,
    -- | For how long a client may be slower; default 30 s.
    confRateGrace :: !Duration,
    -- | Default 10 s.
    confGrace :: !Duration,
    -- | For how long it goes on, and says that it is not ready, before it stops; default 0.
    confShutdownDelay :: !Duration,
    -- | Octets of a request body that are read and thrown away; default 65,536.
    confSkipBody :: !Int64,
    -- | Whether each connection begins with a header that names the client; default
    -- 'False'.
    confProxyProtocol :: !Bool,
    -- | Who may send such a header; default: nobody.
    confTrustedProxies :: ![Network],
    -- | Whether other processes may listen on the same port; default 'False'.
    confReusePort :: !Bool,
    -- | A timeline goes there; default: none is recorded.
    confTrace :: !(Maybe ByteString),
    -- | Whether only errors are printed; default 'False'.
    confQuiet :: !Bool
  }

-- | Logs.
data LogConfig = LogConfig
  { -- | The access log; @-@ is standard output. Default: none.
    logAccess :: !(Maybe ByteString),
    -- | The format of its lines; default 'Combined'.
    logFormat :: !LogFormat
  }

-- | Certificates and their keys, as many of one as of the other.
data TlsConfig = TlsConfig
  { tlsCertificate :: ![NamedFile],
    tlsKey :: ![NamedFile]
  }

-- | Where metrics are to be had.
newtype MetricsConfig = MetricsConfig
  { -- | An address and port of their own; default: nowhere.
    metricsListen :: Maybe Endpoint
  }

-- | Where to listen.
data Endpoint = Endpoint
  { endpointHost :: !String,
    endpointPort :: !Int
  }
  deriving stock (Eq, Show)

-- | What happens to connections beyond their number.
overloadOf :: ServerConfig -> Overload
overloadOf config
  | confRefuses config = RefuseQuickly (confRetryAfter config)
  | otherwise = WaitInBacklog

-- | A minimum rate, of so many octets a second.
rateOf :: ServerConfig -> Int64 -> Maybe MinimumRate
rateOf config octets
  | octets <= 0 = Nothing
  | otherwise = Just (MinimumRate octets (confRateGrace config))

-- | A file, and where it was named: @weft.toml:3:1@, or an option.
data NamedFile = NamedFile
  { namedPath :: !ByteString,
    namedAt :: !ByteString
  }
  deriving stock (Eq, Show)

-- | A directory that is served.
data Site = Site
  { -- | The directory, and where it was named.
    siteRoot :: !(Maybe NamedFile),
    -- | How it is served; what the other fields say is not yet in it.
    siteStatic :: !StaticSettings,
    -- | Whether the server compresses; default 'False'.
    siteCompress :: !Bool,
    -- | What it compresses, if it does.
    siteCompressHow :: !CompressSettings,
    -- | The file for all paths that have none; default: 404.
    siteFallback :: !(Maybe ByteString),
    -- | Whether for paths with an extension, too; default 'False'.
    siteFallbackExtensions :: !Bool
  }

-- | Which hosts have which site.
data HostsConfig = HostsConfig
  { hostSites :: ![(HostPattern, String)],
    -- | The site of all others.
    hostDefault :: !(Maybe String),
    -- | The status for a host without a site: 421 or 404. Default 421.
    hostUnknown :: !Int
  }

-- | The defaults named at each field. There is no directory to serve in it.
defaultConfig :: Config
defaultConfig =
  Config
    { configServer =
        ServerConfig
          { confHost = Nothing,
            confPort = 8080,
            confWorkers = Nothing,
            confBackend = Auto,
            confMaxConnections = Nothing,
            confRefuses = False,
            confRetryAfter = 1,
            confMaxPerClient = 0,
            confMaxRequests = 0,
            confMaxBody = serverMaxBody defaultServerSettings,
            confMinBodyRate = rateOctets defaultMinimumRate,
            confMinResponseRate = rateOctets defaultMinimumRate,
            confRateGrace = rateGrace defaultMinimumRate,
            confGrace = seconds 10,
            confShutdownDelay = seconds 0,
            confSkipBody = 65_536,
            confProxyProtocol = False,
            confTrustedProxies = [],
            confReusePort = False,
            confTrace = Nothing,
            confQuiet = False
          },
      configTimeouts = defaultTimeouts,
      configLimits = defaultLimits,
      configLog = LogConfig Nothing Combined,
      configTls = TlsConfig [] [],
      configMetrics = MetricsConfig Nothing,
      configSite = defaultSite,
      configSites = [],
      configHosts = HostsConfig [] Nothing 421
    }

-- | A site without a root. Files that lie compressed beside others are used.
defaultSite :: Site
defaultSite =
  Site
    { siteRoot = Nothing,
      siteStatic = (defaultStaticSettings "") {staticPrecompressed = [Brotli, Zstandard, Gzip]},
      siteCompress = False,
      siteCompressHow = defaultCompressSettings,
      siteFallback = Nothing,
      siteFallbackExtensions = False
    }

-- | How a site is served, if it has a root. What fits into the cache is compressed.
staticOf :: Site -> Maybe StaticSettings
staticOf site = set <$> siteRoot site
  where
    set root =
      (siteStatic site)
        { staticRoot = namedPath root,
          staticCompress = if siteCompress site then Just (siteCompressHow site) {compressMost = staticLargestCached (siteStatic site)} else Nothing,
          staticFallback = (`Fallback` siteFallbackExtensions site) <$> siteFallback site
        }

-- | Change all sites.
everySite :: (Site -> Site) -> Config -> Config
everySite change config =
  config {configSite = change (configSite config), configSites = fmap change <$> configSites config}

-- | What the site of the table @[site]@ is called among the others.
defaultSiteName :: String
defaultSiteName = "site"

-- | The site of a name.
siteNamed :: Config -> String -> Maybe Site
siteNamed config name
  | name == defaultSiteName = Just (configSite config)
  | otherwise = lookup name (configSites config)

-- | The names of the sites that requests can reach, and the name of the one for hosts
-- that have no other, if there is one.
reachable :: Config -> ([String], Maybe String)
reachable config = (nub (map snd (hostSites hosts) <> maybe [] pure others), others)
  where
    hosts = configHosts config
    others = case hostDefault hosts of
      Nothing | isJust (siteRoot (fromMaybe defaultSite (siteNamed config defaultSiteName))) -> Just defaultSiteName
      given -> given
