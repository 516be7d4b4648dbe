module weft.example/interop

go 1.19
