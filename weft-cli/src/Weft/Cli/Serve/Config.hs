-- | The configuration of weft serve, with its defaults. "Weft.Cli.Serve.Keys" names its parts in
-- files.
module Weft.Cli.Serve.Config
  ( Config (..),
    defaultConfig,
    ServerConfig (..),
    LogConfig (..),
    TlsConfig (..),
    Endpoint (..),
    served,
    rateOf,
    NamedFile (..),

    -- * Sites
    Site (..),
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
import Weft.Cli.Tcp (OwnTcp)
import Weft.Http.AccessLog (LogFormat (Combined))
import Weft.Http.Compress
import Weft.Http.Hosts
import Weft.Http.Negotiation
import Weft.Http.Proxy (Network)
import Weft.Http.Server
import Weft.Http.Static
import Weft.Policy (Policy, fifo)

-- | The whole configuration.
data Config = Config
  { configServer :: !ServerConfig,
    configLog :: !LogConfig,
    configTls :: !TlsConfig,
    -- | The address of metrics and probes; default: none.
    configMetrics :: !(Maybe Endpoint),
    -- | The site of all hosts that have no other; other sites start from it.
    configSite :: !Site,
    -- | More sites, by name.
    configSites :: ![(String, Site)],
    configHosts :: !HostsConfig
  }

-- | Where and how the service runs. "Weft.Cli.Serve.Keys" has the meaning and the default of each.
data ServerConfig = ServerConfig
  { confHost :: !(Maybe String),
    confPort :: !Int,
    confWorkers :: !(Maybe Int),
    confBackend :: !BackendChoice,
    confSchedule :: !Policy,
    confTcp :: !(Maybe OwnTcp),
    confHandover :: !(Maybe ByteString),
    confMaxConnections :: !(Maybe Int),
    confRefuses :: !Bool,
    confRetryAfter :: !Int,
    -- | The settings of the server, as far as no other field determines them.
    confSettings :: !ServerSettings,
    -- | In octets per second, 0 for none; a client may be slower for the third.
    confMinBodyRate, confMinResponseRate :: !Int64,
    confRateGrace :: !Duration,
    confShutdownDelay :: !Duration,
    confProxyProtocol :: !Bool,
    confTrustedProxies :: ![Network],
    confReusePort :: !Bool,
    confTrace :: !(Maybe ByteString),
    confQuiet :: !Bool
  }

-- | Logs.
data LogConfig = LogConfig
  { logAccess :: !(Maybe ByteString),
    logFormat :: !LogFormat
  }

-- | Certificates and their keys, as many of one as of the other.
data TlsConfig = TlsConfig
  { tlsCertificate :: ![NamedFile],
    tlsKey :: ![NamedFile]
  }

-- | An address to listen on.
data Endpoint = Endpoint
  { endpointHost :: !String,
    endpointPort :: !Int
  }
  deriving stock (Eq, Show)

-- | Change the settings of the server.
served :: (ServerSettings -> ServerSettings) -> ServerConfig -> ServerConfig
served change config = config {confSettings = change (confSettings config)}

-- | A minimum rate in octets per second.
rateOf :: ServerConfig -> Int64 -> Maybe MinimumRate
rateOf config octets
  | octets <= 0 = Nothing
  | otherwise = Just (MinimumRate octets (confRateGrace config))

-- | A file, and the place that names it: @weft.toml:3:1@, or an option.
data NamedFile = NamedFile
  { namedPath :: !ByteString,
    namedAt :: !ByteString
  }
  deriving stock (Eq, Show)

-- | A directory that is served.
data Site = Site
  { -- | The directory, and where it was named.
    siteRoot :: !(Maybe NamedFile),
    -- | How it is served, without the other fields' values.
    siteStatic :: !StaticSettings,
    siteCompress :: !Bool,
    siteCompressHow :: !CompressSettings,
    siteFallback :: !(Maybe ByteString),
    siteFallbackExtensions :: !Bool
  }

-- | The sites of hosts.
data HostsConfig = HostsConfig
  { hostSites :: ![(HostPattern, String)],
    -- | The site of all others.
    hostDefault :: !(Maybe String),
    -- | The status for a host without a site: 421 or 404. Default 421.
    hostUnknown :: !Int
  }

-- | The defaults named at each field, and no directory.
defaultConfig :: Config
defaultConfig =
  Config
    { configServer =
        ServerConfig
          { confHost = Nothing,
            confPort = 8080,
            confWorkers = Nothing,
            confBackend = Auto,
            confSchedule = fifo,
            confTcp = Nothing,
            confHandover = Nothing,
            confMaxConnections = Nothing,
            confRefuses = False,
            confRetryAfter = 1,
            confSettings = defaultServerSettings,
            confMinBodyRate = rateOctets defaultMinimumRate,
            confMinResponseRate = rateOctets defaultMinimumRate,
            confRateGrace = rateGrace defaultMinimumRate,
            confShutdownDelay = seconds 0,
            confProxyProtocol = False,
            confTrustedProxies = [],
            confReusePort = False,
            confTrace = Nothing,
            confQuiet = False
          },
      configLog = LogConfig Nothing Combined,
      configTls = TlsConfig [] [],
      configMetrics = Nothing,
      configSite = defaultSite,
      configSites = [],
      configHosts = HostsConfig [] Nothing 421
    }

-- | A site without a root. It uses precompressed files.
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

-- | How a site is served, if it has a root. Compresses what fits into the cache.
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

-- | The name of the site of the table @[site]@.
defaultSiteName :: String
defaultSiteName = "site"

-- | The site of a name.
siteNamed :: Config -> String -> Maybe Site
siteNamed config name
  | name == defaultSiteName = Just (configSite config)
  | otherwise = lookup name (configSites config)

-- | The names of the reachable sites, and of the site for all other hosts, if there is one.
reachable :: Config -> ([String], Maybe String)
reachable config = (nub (map snd (hostSites hosts) <> maybe [] pure others), others)
  where
    hosts = configHosts config
    others = case hostDefault hosts of
      Nothing | isJust (siteRoot (fromMaybe defaultSite (siteNamed config defaultSiteName))) -> Just defaultSiteName
      given -> given
