module weft-peer-gofigures

go 1.21
