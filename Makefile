# The targets of a clone of Weft: `make help`.
#
# Every target does the set-up it needs first, which costs nothing when all is there.
# The work is done by cabal and by the scripts in tools/; nothing is decided here.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# make serve
PORT = 8080
DIR  = site
# make view-timeline
FILE =
# make explore
SEEDS = 0-99999
# make explore-tcp, which takes SEEDS too
WORLDS = 0-999999
# make soak
MINUTES = 10
# make fuzz-http, which takes MINUTES too
SEED = 1
# make test-interop
GROUPS = split curl python tools browser tcp slow soak
# make fuzz-tcp
CASES = 1000000
# make reuses
REUSES = 100000
# make packetdrill
SCRIPTS =
# Further options for the program that a target runs: make bench-http ARGS=--json
ARGS =

.PHONY: help setup build serve test lint format docs check-setup check-ghc view-timeline \
  test-interop soak fuzz fuzz-http fuzz-tcp reuses packetdrill differential explore explore-tcp kv bench bench-yield bench-timers bench-http bench-http-figures bench-substrate figures gate \
  setup-build setup-bench setup-gate setup-figures setup-interop servers storm select program peers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (with apt), or say what to install
	@tools/setup

build: setup-build ## compile bin/weft and bin/weft-bench
	@tools/build weft-cli:exe:weft weft-bench:exe:weft-bench

serve: program ## serve a directory over HTTP [PORT=8080] [DIR=site]
	@exec bin/weft serve --port '$(PORT)' $(ARGS) '$(DIR)'

test: setup ## compile without warnings, run all tests, check the layout
	@tools/run-tests

test-interop: setup-interop servers ## real clients against the servers: a table [GROUPS="curl tools"] [ARGS="--backend epoll"]
	@exec python3 weft-cli/interop/interop.py $(ARGS) $(GROUPS)

soak: setup-build servers storm ## storms of cancellations, clients of every kind for long, and what is left of them [MINUTES=10]
	@exec python3 weft-cli/interop/soak.py '$(MINUTES)' $(ARGS)

fuzz: fuzz-http fuzz-tcp ## both of these

fuzz-http: setup ## the parser of requests beside those of others, for long [MINUTES=10] [SEED=1]
	@tools/build weft-http:test:weft-http-differential
	@cd weft-http && exec ../bin/weft-http-differential fuzz '$(MINUTES)' '$(SEED)'

fuzz-tcp: setup ## a TCP connection against any inputs in any order, its parsers against any bytes [CASES=1000000] [ARGS=--quickcheck-replay=7]
	@tools/build weft-tcp:test:weft-tcp-test
	@exec bin/weft-tcp-test -p '/hostile/||/any bytes/' --quickcheck-tests '$(CASES)' --timeout 1h $(ARGS)

reuses: setup ## close descriptors while two threads wait and reuse the numbers, for long [REUSES=100000]
	@tools/build weft:test:weft-events-test weft:test:weft-test weft-ghc-io:test:weft-ghc-io-test
	@export WEFT_REUSES='$(REUSES)' TASTY_TIMEOUT=30m
	@bin/weft-events-test -p 'reuse a number'
	@cd weft && ../bin/weft-test -p 'close and reuse numbers'
	@cd ../weft-ghc-io && exec ../bin/weft-ghc-io-test -p 'close and reuse numbers'

packetdrill: setup-build ## weft-tcp against scripts of packets, where packetdrill is there [SCRIPTS=weft-tcp/packetdrill/scripts]
	@exec tools/packetdrill $(SCRIPTS)

differential: setup-build ## weft-tcp and Linux, given the same random calls and packets (as root) [ARGS='--seed 0 --scripts 600']
	@exec python3 weft-tcp/packetdrill/differential.py "$$(tools/packetdrill build)" $(ARGS)

lint: setup ## hlint, and is everything laid out as ormolu would?
	@tools/lint

explore: setup-build ## simulate the threads with many seeds, or all schedules [SEEDS=0-99999] [ARGS=--systematic=2]
	@tools/build weft-sim:exe:weft-explore
	@bin/weft-explore --seeds '$(SEEDS)' $(ARGS)
	@$(if $(ARGS),,$(MAKE) explore-tcp)

explore-tcp: setup-build ## worlds of two TCP connections, and services over TCP segments [WORLDS=0-999999] [SEEDS=0-99999]
	@tools/build weft-tcp:exe:weft-tcp-worlds weft-tcp:exe:weft-tcp-explore
	@bin/weft-tcp-worlds '$(WORLDS)'
	@bin/weft-tcp-worlds netsim weft-tcp/worlds/netsim.md
	@exec bin/weft-tcp-explore --seeds '$(SEEDS)' $(ARGS)

kv: setup-build ## run the replicated store, or simulate it [ARGS="simulate --mistake wall-clock-versions"]
	@tools/build weft-sim:exe:weft-kv
	@exec bin/weft-kv $(or $(ARGS),run)

format: setup ## lay everything out as ormolu would
	@tools/lint --fix

docs: setup ## Haddock for all packages, and run the examples in it
	@tools/docs

view-timeline: ## read a timeline with Chrome's own importer (needs node and Go) [FILE=...]
	@tools/view-timeline '$(FILE)'

check-setup: ## does tools/setup install what the packages depend on?
	@tools/check-setup

check-ghc: ## all tests with the GHC and the libraries of Debian sid, in a chroot that this makes [ARGS=-O0]
	@tools/check-ghc $(ARGS)

bench: bench-yield bench-timers bench-http ## the three that follow, one after the other

bench-yield: build peers ## switching between threads, beside forkIO, Go and tokio
	@bin/weft-bench peer-yield $(ARGS)

bench-timers: build peers ## sleeping threads, beside forkIO, Go and tokio
	@bin/weft-bench peer-timers $(ARGS)

bench-http: setup-bench build peers ## HTTP beside nginx, Apache, warp, Go, ... [ARGS=--quick: in three minutes]
	@bin/weft-bench http --weft bin/weft $(ARGS)

bench-http-figures: setup-bench build peers ## the same, and leave rows, tables and figures in docs/figures
	@bin/weft-bench http --weft bin/weft --out docs/figures $(ARGS)

bench-substrate: setup-figures build select peers ## Li's six configurations, and docs/figures/substrate.md of them; 12 minutes [ARGS=--tiny: one]
	@bin/weft-bench substrate --json --page docs/figures/substrate.md $(or $(ARGS),--whole --rounds 3) > docs/figures/substrate.json

figures: setup-figures build select peers ## the works' experiments, and docs/figures.md of them; two hours [ARGS=--quick: ten minutes]
	@bin/weft-bench works $(ARGS)

gate: setup-gate ## what a request costs in instructions, code and memory, beside the committed figures [ARGS=--write]
	@tools/build weft-cli:exe:weft weft-wai:exe:weft-wai-hello weft-bench:exe:weft-bench
	@exec weft-bench/gate/gate.py $(ARGS)

clean: ## remove all that was compiled
	@rm -rf dist-newstyle bin
	@if [ -e weft-bench/peers/Makefile ]; then $(MAKE) -C weft-bench/peers clean; fi

# Parts of the above.

setup-build:
	@tools/setup build

setup-bench:
	@tools/setup bench

setup-gate:
	@tools/setup gate

# A peer that cannot be installed is named on the page.
setup-figures: setup-build
	@tools/setup bench || echo 'make: not all peers are there' >&2

# The table names the clients that cannot be installed.
setup-interop:
	@tools/setup interop || echo 'make: not all clients are there' >&2

servers: setup-build
	@tools/build weft-cli:exe:weft weft-cli:exe:weft-http-echo weft-cli:exe:weft-tcp-peer

select: setup-build
	@tools/build weft-bench:exe:weft-bench-select

storm: setup-build
	@tools/build weft-cli:exe:weft-storm

program: setup-build
	@tools/build weft-cli:exe:weft

peers: setup-build
	@$(MAKE) -C weft-bench/peers >&2
