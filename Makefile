# Argosy. `make help` tells what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := bin/argosy
# One set of flags everywhere: builds with other flags do not share the build cache. No debugger's tables: linking them takes twice as long.
GO ?= go
LDFLAGS := -s -w

.PHONY: help build parts lint test test-unit test-e2e fuzz demo generate verify vuln image charts bench-core bench-placement bench-pulls bench-agents bench-takeover bench-stop chaos clean

help: ## what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST) | sort

build: ## the binary, bin/argosy
	@mkdir -p bin
	$(GO) build -ldflags="$(LDFLAGS)" -o $(BIN) ./cmd/argosy

parts: ## build or find the real parts that tests and demo run on (Kubernetes, Argo CD, PostgreSQL, helm, kustomize)
	@scripts/parts.sh

lint: ## golangci-lint with the house rules
	@scripts/lint.sh

test: ## everything: unit, contract, PostgreSQL, API server and end-to-end tests
	@scripts/test.sh

test-unit: ## the tests that need no cluster, with the race detector
	@scripts/test.sh unit

test-e2e: ## the whole system on real parts
	@scripts/test.sh e2e

fuzz: ## each fuzz target for FUZZTIME (default 30s)
	@scripts/fuzz.sh

chaos: ## histories of faults for MINUTES (default 30), from SEED on; a history that breaks a rule is made shorter and printed
	@scripts/parts.sh git postgres lab argocd-3.2
	$(GO) test ./test/chaos -v -timeout 0 -run AnyHistory -chaos.minutes=$(or $(MINUTES),30) -chaos.seed=$(or $(SEED),0)

bench-takeover: ## how long the next change takes after a replica was killed or stopped
	@scripts/parts.sh git postgres lab argocd-3.2
	$(GO) test ./test/chaos -timeout 0 -run '^$$' -bench Takeover -benchtime 10x

bench-stop: ## an emergency stop while readers and reconnecting agents load the replica: its answer, and the last write
	@scripts/parts.sh git postgres lab argocd-3.2
	$(GO) test ./test/chaos -timeout 0 -run '^$$' -bench Stop -benchtime 5x

demo: ## the main job, live, on real parts (ONCE=1 ends by itself)
	@scripts/demo.sh

generate: ## schemas, config reference, OpenAPI document
	$(GO) generate ./...

verify: lint vuln ## lint, known vulnerabilities, and that nothing generated is stale
	@scripts/verify.sh

vuln: ## known vulnerabilities of what the binary links (GOVULNDB, REQUIRE_VULNDB=1)
	@scripts/vuln.sh

image: ## the image as an OCI layout, bin/image, without a container engine (PLATFORMS, VERSION)
	@scripts/image.sh

charts: ## the charts: schemas, lint, kubeconform, unit tests, and that they agree with the binary
	@scripts/parts.sh helm kubeconform helm-unittest kube-schemas argocd-manifests
	$(GO) test ./charts/...

bench-core: ## the core's figures, as ratios to floors measured in the same run; then PostgreSQL's
	@scripts/bench.sh core

bench-placement: ## time and moves of placement, against Argo CD's own sharding
	@scripts/bench.sh placement

bench-pulls: ## webhook deliveries, and the plan of a pull request
	@scripts/bench.sh pulls

bench-agents: ## what agents cost the hub, and how fast changes reach and return from them (SMALL=1 for a quick look)
	@scripts/bench.sh agents

clean: ## what was built here (the Go build cache stays)
	rm -rf bin .cache
