-- |
-- Description : From the configuration of sites to the handler of the server
--
-- Opens the directories of all reachable sites, and chooses among them by host.
module Weft.Cli.Serve.Sites (Sites, openSites, closeSites, sitesHandler, sitesAtHand, sitesShown) where

import Control.Monad (forM, forM_)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Maybe (fromMaybe, mapMaybe)
import Weft
import Weft.Cli.Serve.Config
import Weft.Http.Hosts
import Weft.Http.Server
import Weft.Http.Static

-- | Open directories by the names of their sites, and the hosts of each.
data Sites = Sites [(String, Static)] HostsConfig (Maybe String)

-- | Open the directories. The action gets messages for the operator; the number limits the files
-- that all of them together keep open. Throws 'IOError' if a directory cannot be opened.
openSites :: (String -> IO ()) -> Int -> Config -> Thread Sites
openSites report files config = do
  open <- forM toOpen $ \(name, settings) ->
    (,) name <$> openStatic settings {staticReport = report, staticOpenFiles = min each (staticOpenFiles settings)}
  pure (Sites open (configHosts config) others)
  where
    toOpen = [(name, settings) | name <- names, Just settings <- [siteNamed config name >>= staticOf]]
    each = files `div` max 1 (length toOpen)
    (names, others) = reachable config

-- | Close their directories.
closeSites :: Sites -> Thread ()
closeSites (Sites open _ _) = forM_ open (closeStatic . snd)

-- | Answer with the files of the host's site.
sitesHandler :: Sites -> Clock -> Handler
sitesHandler (Sites open hosts others) clock
  | null (hostSites hosts) = fallback
  | otherwise = byHost (hostTable (mapMaybe (traverse handlerOf) (hostSites hosts))) fallback
  where
    -- Made once for each site, not for each request.
    handlers = [(name, staticHandler static clock) | (name, static) <- open]
    handlerOf name = lookup name handlers
    fallback = fromMaybe (misdirected (toEnum (hostUnknown hosts))) (others >>= handlerOf)

-- | Answer with what the host's site has at hand.
sitesAtHand :: Sites -> Clock -> AtHand
sitesAtHand (Sites open hosts others) clock
  | null (hostSites hosts) = fallback
  | otherwise = \request -> fromMaybe fallback (requestHost request >>= lookupHost table) request
  where
    atHands = [(name, staticAtHand static clock) | (name, static) <- open]
    table = hostTable (mapMaybe (traverse (`lookup` atHands)) (hostSites hosts))
    fallback = fromMaybe (\_ -> pure Nothing) (others >>= (`lookup` atHands))

-- | The served directories, for the message at the start.
sitesShown :: Config -> ByteString
sitesShown config = case fst (reachable config) of
  [name] | Just root <- siteNamed config name >>= siteRoot -> namedPath root
  names -> C.pack (show (length names)) <> " sites"
