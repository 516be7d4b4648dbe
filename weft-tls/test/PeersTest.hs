-- | The server with other people's clients: @openssl s_client@, @curl@, Python.
module PeersTest (tests) where

import Control.Monad (forM_)
import Data.ByteString qualified as B
import Data.List (isInfixOf)
import System.Exit (ExitCode (..))
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Http.Server
import Weft.Tls
import World

tests :: World -> TestTree
tests w =
  testGroup
    "peers"
    [ testGroup
        "curl"
        [ testCase (show backend <> ", " <> certificate) $
            servingOn (systemKernel defaultSystemSettings {systemBackend = backend}) (settingsOf w [certificate]) id $ \served ->
              forM_ [("1.2", "TLS1.2"), ("1.3", "TLS1.3")] $ \(newest, version) -> do
                -- Two requests on one connection.
                (status, out, err) <- program "curl" (curl <> ["--tls-max", newest, "--write-out", "[%{num_connects}]", at' served "/", at' served "/"])
                liftIO ((status, err) @?= (ExitSuccess, ""))
                liftIO (assertBool out (all (`isInfixOf` out) [version, "securityProtocol = Just \"http/1.1\"", "securityServerName = Just \"localhost\"", "[1]", "[0]"]))
          | backend <- backends,
            certificate <- ["ecdsa", "rsa"]
        ],
      testCase "every cipher is spoken, and weak ones are not" $ world ["ecdsa", "rsa"] $ \served -> do
        forM_ ciphers $ \(option, cipher, name) -> do
          (status, out, err) <- program "curl" (curl <> [option, cipher, "--tls-max", if option == "--ciphers" then "1.2" else "1.3", at' served "/"])
          liftIO ((status, err) @?= (ExitSuccess, ""))
          liftIO (assertBool (name <> ": " <> out) (name `isInfixOf` out))
        forM_ ["ECDHE-RSA-AES128-SHA", "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256"] $ \cipher -> do
          (_, out, _) <- openssl served ["-tls1_2", "-cipher", cipher] ""
          liftIO (assertBool out ("Cipher is (NONE)" `isInfixOf` out))
        forM_ ["-tls1_1", "-tls1"] $ \version -> do
          (_, out, _) <- openssl served [version, "-cipher", "ALL:@SECLEVEL=0"] ""
          liftIO (assertBool out ("Cipher is (NONE)" `isInfixOf` out)),
      testCase "the oldest version can be set" $ serving (settingsOf w ["ecdsa"]) {tlsOldest = Tls13} id $ \served -> do
        (_, out, _) <- openssl served ["-tls1_2"] ""
        liftIO (assertBool out ("Cipher is (NONE)" `isInfixOf` out))
        (status, _, _) <- openssl served ["-tls1_3"] ""
        liftIO (status @?= ExitSuccess),
      testCase "ALPN: the server chooses; nothing in common is refused" $ world ["ecdsa"] $ \served -> forM_ ["-tls1_2", "-tls1_3"] $ \version -> do
        (_, both, _) <- openssl served [version, "-alpn", "h2,http/1.1"] ""
        liftIO (assertBool both ("ALPN protocol: http/1.1" `isInfixOf` both))
        (_, none, _) <- openssl served [version] ""
        liftIO (assertBool none ("No ALPN negotiated" `isInfixOf` none))
        (status, out, err) <- openssl served [version, "-alpn", "h2"] ""
        liftIO (assertBool (out <> err) (status /= ExitSuccess && "no application protocol" `isInfixOf` err)),
      testCase "a session is resumed, and not after its certificate was loaded again" $ world ["ecdsa"] $ \served -> forM_ ["-tls1_2", "-tls1_3"] $ \version -> do
        let session = directory w <> "/session" <> version
            request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            again = openssl served [version, "-ign_eof", "-sess_in", session] request
        (_, first, _) <- openssl served [version, "-ign_eof", "-sess_out", session] request
        liftIO (assertBool first ("New, TLS" `isInfixOf` first))
        (_, second, _) <- again
        liftIO (assertBool second ("Reused, TLS" `isInfixOf` second && "HTTP/1.1 200" `isInfixOf` second))
        reloadTls (servedTls served) >>= either (liftIO . assertFailure . show) pure
        (_, third, _) <- again
        liftIO (assertBool third ("New, TLS" `isInfixOf` third && "HTTP/1.1 200" `isInfixOf` third)),
      testCase "sessions can be switched off" $ serving (settingsOf w ["ecdsa"]) {tlsSessions = 0} id $ \served -> do
        let session = directory w <> "/session-off"
            request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        _ <- openssl served ["-ign_eof", "-sess_out", session] request
        (_, second, _) <- openssl served ["-ign_eof", "-sess_in", session] request
        liftIO (assertBool second ("HTTP/1.1 200" `isInfixOf` second && not ("Reused" `isInfixOf` second))),
      testCase "a change of keys in the middle" $ world ["ecdsa"] $ \served -> do
        -- K: change ours, and ask for a change of theirs.
        out <- commanding w served ["-tls1_3"] "K" "KEYUPDATE"
        liftIO (assertBool out ("HTTP/1.1 200" `isInfixOf` out)),
      testGroup
        "Python"
        [ testCase (show backend <> ", " <> show megabytes <> " MB") $
            servingOn (systemKernel defaultSystemSettings {systemBackend = backend}) (settingsOf w ["ecdsa"]) changed $ \served -> do
              liftIO (B.writeFile script python)
              (status, out, err) <- program "python3" [script, servedPort served, directory w, show megabytes]
              liftIO ((status, out, err) @?= (ExitSuccess, "good\n", ""))
          | (backend, megabytes) <- zip backends [100, 10, 10 :: Int]
        ]
    ]
  where
    world names = serving (settingsOf w names) id
    script = directory w <> "/client.py"
    changed s = s {serverMaxBody = 200_000_000}
    curl = ["--silent", "--show-error", "--cacert", directory w <> "/ca.pem"]
    at' served path = "https://localhost:" <> servedPort served <> path
    openssl served arguments =
      programWithInput
        "openssl"
        (["s_client", "-connect", "127.0.0.1:" <> servedPort served, "-servername", "localhost", "-CAfile", directory w <> "/ca.pem"] <> arguments)
    ciphers =
      [("--tls13-ciphers", name, name) | name <- ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]]
        <> [ ("--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
             ("--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
             ("--ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
             ("--ciphers", "ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
             ("--ciphers", "ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
             ("--ciphers", "ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256")
           ]

-- | Uploads and downloads of the given number of megabytes, files, streams, many requests on a connection.
python :: B.ByteString
python =
  "import hashlib, http.client, ssl, sys\n\
  \port, where, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3])\n\
  \large = open(where + '/large.bin', 'rb').read()\n\
  \context = ssl.create_default_context(cafile=where + '/ca.pem')\n\
  \context.set_alpn_protocols(['http/1.1'])\n\
  \def sum_of(data):\n\
  \    s = 0\n\
  \    for b in data: s = (s * 31 + b) % 1000003\n\
  \    return s\n\
  \c = http.client.HTTPSConnection('localhost', int(port), context=context, timeout=30)\n\
  \def get(path):\n\
  \    c.request('GET', path)\n\
  \    r = c.getresponse()\n\
  \    assert r.status == 200, r.status\n\
  \    return r.read()\n\
  \assert get('/large') == large\n\
  \assert get('/file?' + where + '/large.bin') == b'<' + large + b'>'\n\
  \assert get('/stream?1234') == b'x' * 1234000\n\
  \for _ in range(200): assert b'TLS1.3' in get('/')\n\
  \for n in (0, 1, 1000, 16384, 16385, 300000):\n\
  \    body = large[:n]\n\
  \    c.request('POST', '/sum', body)\n\
  \    assert c.getresponse().read().decode() == '%d %d' % (n, sum_of(body))\n\
  \total = megabytes * 1000 * 1000\n\
  \c.request('GET', '/stream?%d' % (total // 1000))\n\
  \r = c.getresponse()\n\
  \h, n = hashlib.sha256(), 0\n\
  \while True:\n\
  \    b = r.read(1 << 20)\n\
  \    if not b: break\n\
  \    h.update(b); n += len(b)\n\
  \assert n == total and h.digest() == hashlib.sha256(b'x' * total).digest()\n\
  \# x * 31 + 0x61, this many times, by squaring.\n\
  \m = 1000003\n\
  \def power(k):\n\
  \    a, b, ra, rb = 31, 0x61, 1, 0\n\
  \    while k:\n\
  \        if k & 1: ra, rb = a * ra % m, (a * rb + b) % m\n\
  \        a, b = a * a % m, (a * b + b) % m\n\
  \        k >>= 1\n\
  \    return rb\n\
  \c.request('POST', '/sum', (b'a' * 1000000 for _ in range(megabytes)), {'Content-Length': str(total)})\n\
  \assert c.getresponse().read().decode() == '%d %d' % (total, power(total))\n\
  \c.close()\n\
  \print('good')\n"
