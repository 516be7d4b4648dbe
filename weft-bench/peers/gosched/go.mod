module weft-peer-gosched

go 1.21
