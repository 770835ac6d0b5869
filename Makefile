# Argosy. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := bin/argosy
# One set of flags everywhere: builds with other flags do not share the build cache. No debugger's tables: linking them takes twice as long.
GO ?= go
LDFLAGS := -s -w
# Without the Go plugins of kustomize, which argosy does not load, binaries link in a quarter of the time.
export GOFLAGS := $(GOFLAGS) -tags=kustomize_disable_go_plugin_support

.PHONY: help build parts lint test test-unit test-e2e fuzz demo generate verify vuln image charts bench-core bench-slow bench-placement bench-fleet bench-pulls bench-agents bench-page bench-rollout bench-takeover bench-stop chaos chaos-moves load-adoption load-drain load-moves load-pool load-rebalance load-remedies load-ring load-rollout clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST) | sort

build: ## build the binary, bin/argosy
	@mkdir -p bin
	$(GO) build -ldflags="$(LDFLAGS)" -o $(BIN) ./cmd/argosy

parts: ## build or find what tests and demo run on (Kubernetes, Argo CD, PostgreSQL, helm, kustomize)
	@scripts/parts.sh

lint: ## run golangci-lint with the rules of .golangci.yaml
	@scripts/lint.sh

test: ## run every test: unit, contract, PostgreSQL, API server and end-to-end
	@scripts/test.sh

test-unit: ## run the tests outside of test/, with the race detector where goroutines share memory
	@scripts/test.sh unit

test-e2e: ## run the tests of test/: the whole system on real parts
	@scripts/test.sh e2e

fuzz: ## run each fuzz target for FUZZTIME (default 30s)
	@scripts/fuzz.sh

chaos: ## run seeded histories of faults for MINUTES (default 30) from SEED on; shorten and print one that fails
	@scripts/parts.sh git postgres lab argocd-3.5
	$(GO) test ./test/chaos -v -timeout 0 -run AnyHistory -chaos.minutes=$(or $(MINUTES),30) -chaos.seed=$(or $(SEED),0)

chaos-moves: ## let every process of a move fail at every step, on real parts (20 min)
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5
	$(GO) test ./test/e2e -v -timeout 0 -run TestMovesMeetFaults -move.faults

load-adoption: ## adopt APPLICATIONS (default 300) of a real Argo CD 2.14 and 3.5, change and release them
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5
	$(GO) test ./fleet/argocd -v -timeout 0 -run TestManyApplications -adopt.applications=$(or $(APPLICATIONS),300)

load-drain: ## drain a real Argo CD 2.14 with APPLICATIONS (default 200), of which one cannot leave, to 3.5
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5
	$(GO) test ./test/e2e -v -timeout 0 -run TestAnEngineWithManyApplications -drain.applications=$(or $(APPLICATIONS),200)

load-moves: ## move an environment with APPLICATIONS (default 50) from a real Argo CD 2.14 to 3.5 and back
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5
	$(GO) test ./test/e2e -v -timeout 0 -run TestAnEnvironmentWithManyApplications -move.applications=$(or $(APPLICATIONS),50)

load-pool: ## grow a pool of real Argo CDs from 1 to 3 under APPLICATIONS (default 600), and shrink it again
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5 argocd-manifests
	$(GO) test ./test/e2e -v -timeout 0 -run TestAPoolGrowsToThree -pool.applications=$(or $(APPLICATIONS),600)

load-rebalance: ## rebalance the measured load of a real Argo CD: propose, accept and move (6 min)
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5
	$(GO) test ./test/e2e -v -timeout 0 -run TestTheMeasuredLoad -rebalance

load-remedies: ## let a real Argo CD get stuck ROUNDS (default 3) times, its repo-server silent once
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5
	$(GO) test ./test/e2e -v -timeout 0 -run 'TestAStuckArgoCDIsRestarted|TestASilentRepoServer' -remedy.rounds=$(or $(ROUNDS),3) -remedy.silences=1

load-ring: ## take a ring of two real Argo CDs with APPLICATIONS (default 50) from 2.14 to 3.5: fail, differ, succeed
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5 argocd-manifests
	$(GO) test ./test/e2e -v -timeout 20m -run TestARingOfTwoEngines -ring.applications=$(or $(APPLICATIONS),50)

load-rollout: ## roll a revision over ENVIRONMENTS (default 30) that gets Degraded in wave 2, on real Argo CDs
	@scripts/parts.sh git postgres lab argocd-2.14 argocd-3.5
	$(GO) test ./test/e2e -v -timeout 0 -run TestARevisionThatGetsDegradedInTheSecond -rollout.environments=$(or $(ENVIRONMENTS),30)

bench-takeover: ## measure how long a change takes after a replica was killed or stopped
	@scripts/parts.sh git postgres lab argocd-3.5
	$(GO) test ./test/chaos -timeout 0 -run '^$$' -bench Takeover -benchtime 10x

bench-stop: ## measure an emergency stop on a loaded replica: its answer and the last write after it
	@scripts/parts.sh git postgres lab argocd-3.5
	$(GO) test ./test/chaos -timeout 0 -run '^$$' -bench Stop -benchtime 5x

demo: ## show the main job live on real parts (ONCE=1 ends by itself)
	@scripts/demo.sh

generate: ## generate schemas, config reference and OpenAPI document
	$(GO) generate ./...

verify: lint vuln ## lint, check for known vulnerabilities, stale generated files and banned words
	@scripts/verify.sh

vuln: ## check the linked packages for known vulnerabilities (GOVULNDB, REQUIRE_VULNDB=1)
	@scripts/vuln.sh

image: ## build the image as an OCI layout, bin/image, without a container engine (PLATFORMS, VERSION)
	@scripts/image.sh

charts: ## test the charts: schemas, lint, kubeconform, unit tests, agreement with the binary
	@scripts/parts.sh helm kubeconform helm-unittest kube-schemas argocd-manifests
	$(GO) test ./charts/...

bench-core: ## measure the core and PostgreSQL, as ratios to floors of the same run
	@scripts/bench.sh core

bench-slow: ## measure changes of one engine beside another that takes 25 s a request, with 500 open revisions
	@scripts/bench.sh slow

bench-placement: ## measure time and moves of placement against Argo CD's own sharding
	@scripts/bench.sh placement

bench-fleet: ## measure the moves of a joining and a leaving engine against Argo CD's own sharding, and a drain
	@scripts/bench.sh fleet

bench-pulls: ## measure webhook deliveries and the plan of a pull request
	@scripts/bench.sh pulls

bench-agents: ## measure the load of agents and how fast changes reach them (SMALL=1 for a short run)
	@scripts/bench.sh agents

bench-page: ## measure the page in a real browser with 25,000 Applications, and 200 people during a storm of changes
	@scripts/bench.sh page

bench-rollout: ## measure a rollout of 200 environments in four waves, over the time that the Applications need
	@scripts/bench.sh rollout

clean: ## remove what was built here; the Go build cache stays
	rm -rf bin .cache
