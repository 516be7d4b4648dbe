module weft.example/interop-tls

go 1.19
