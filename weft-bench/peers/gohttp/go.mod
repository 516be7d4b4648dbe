module weft-peer-gohttp

go 1.21
