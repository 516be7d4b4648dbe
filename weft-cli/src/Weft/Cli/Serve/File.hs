-- | Configuration files. From the bytes of a file to a configuration and its errors. Pure.
module Weft.Cli.Serve.File (readConfig) where

import Control.Applicative ((<|>))
import Data.ByteString (ByteString)
import Data.Either (fromLeft, partitionEithers, rights)
import Data.List (intercalate, sort)
import Data.Maybe (catMaybes, fromMaybe)
import Weft.Cli.Options
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.Keys
import Weft.Cli.Serve.Reader
import Weft.Cli.Serve.Toml
import Weft.Http.Hosts

-- | Apply a file, given its name and content, to a configuration: its errors in the order of the
-- file, and the configuration by its correct parts.
readConfig :: ByteString -> ByteString -> Config -> ([Problem], Config)
readConfig file content start = case parseToml content of
  Left problem -> ([problem], start)
  Right root ->
    let (problems, changes) = unzip (map item (tableItems root))
        config = foldl (flip ($)) start changes
        -- Sites start from [site], wherever in the file it is.
        (siteProblems, sites) = unzip [site (configSite config) i | i <- children "sites" root]
        named' = defaultSiteName : map itemKey (children "sites" root)
        (hostProblems, hosts) = partitionEithers [host named' i | i <- children "hosts" root]
     in ( sort (concat (problems <> siteProblems <> hostProblems) <> twice (children "hosts" root)),
          config {configSites = catMaybes sites, configHosts = foldl (flip ($)) (configHosts config) hosts}
        )
  where
    known = sections file
    names = [sectionName s | SomeSection s <- known] <> reservedTables
    item i = case [s | s@(SomeSection section) <- known, sectionName section == itemKey i] of
      SomeSection section : _ -> case subTable Right (itemPlace i) (itemNode i) of
        Left problems -> (problems, id)
        Right table -> sectionChange section <$> readTable (sectionName section) (sectionKeys section) belonging table
      []
        | itemKey i `elem` reservedTables -> (fromLeft [] (subTable Right (itemPlace i) (itemNode i)), id)
        | otherwise -> ([noTable i], id)
    noTable i = Problem (itemPlace i) (itemKey i <> ": there is no such " <> what <> "; " <> hint)
      where
        (what, similar) = case itemNode i of
          SubTable _ -> ("table", Nothing)
          Tables _ -> ("table", Nothing)
          _ -> ("key outside of tables", misspelt (itemKey i))
        hint = fromMaybe ("there are " <> intercalate ", " names) (belonging (itemKey i) <|> ((\name -> "did you mean " <> name <> "?") <$> nearest (itemKey i) names) <|> similar)
    site base i
      | itemKey i == defaultSiteName = ([Problem (itemPlace i) "sites.site: this name is that of the table [site]; choose another"], Nothing)
      | otherwise = case subTable Right (itemPlace i) (itemNode i) of
          Left problems -> (problems, Nothing)
          Right table ->
            let (problems, change) = readTable ("sites." <> itemKey i) (siteKeys file) belonging table
                made = change base {siteRoot = Nothing}
             in case siteRoot made of
                  Nothing
                    | any ((== "root") . itemKey) (tableItems table) -> (problems, Nothing)
                    | otherwise -> (problems <> [Problem (itemPlace i) ("sites." <> itemKey i <> ": a root is missing")], Nothing)
                  Just _ -> (problems, Just (itemKey i, made))

-- | Hosts that occur twice, written differently.
twice :: [Item] -> [Problem]
twice items =
  [ Problem (itemPlace i) ("hosts." <> show (itemKey i) <> ": this host has a site already")
    | (n, i) <- zip [0 ..] items,
      Right pattern' <- [parsed i],
      pattern' `elem` rights (map parsed (take n items))
  ]
  where
    parsed = parseHostPattern . pathFromText . itemKey

-- | The content of a top-level table.
children :: String -> Table -> [Item]
children name table = concat [tableItems sub | Item given _ (SubTable sub) <- tableItems table, given == name]

-- | One item of [hosts]: a host and its site, or the rule for other hosts.
host :: [String] -> Item -> Either [Problem] (HostsConfig -> HostsConfig)
host sites item = case itemKey item of
  "default" -> (\name hosts -> hosts {hostDefault = Just name}) <$> siteName
  "unknown" -> case itemNode item of
    IntegerNode n | n `elem` [404, 421] -> Right (\hosts -> hosts {hostUnknown = fromInteger n})
    _ -> wrong (itemPlace item) "hosts.unknown: this has to be 421 or 404"
  name -> do
    pattern' <- either (\problem -> wrong (itemPlace item) ("hosts." <> show name <> " " <> problem)) Right (parseHostPattern (pathFromText name))
    target <- siteName
    pure (\hosts -> hosts {hostSites = hostSites hosts <> [(pattern', target)]})
  where
    siteName = case itemNode item of
      StringNode name
        | name `elem` sites -> Right name
        | otherwise -> wrong (itemPlace item) ("hosts." <> show (itemKey item) <> ": there is no site " <> show name <> "; " <> maybe ("there are " <> intercalate ", " sites) (\n -> "did you mean " <> show n <> "?") (nearest name sites))
      SubTable _ -> wrong (itemPlace item) ("hosts." <> itemKey item <> ": this has to be the name of a site, and is a table; names with dots stand in quotes")
      node -> wrong (itemPlace item) ("hosts." <> show (itemKey item) <> ": this has to be the name of a site, and is " <> kindOf node)
