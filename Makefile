# Everything a newcomer types: make demo, make test. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
GUARANTEE ?= exactly_once
BIN := .venv/bin
READY := .venv/.ready
TYPED := protocol/typed.pyi
KAFKA := .peers/kafka-4.3.1
OLD_KAFKA := .peers/kafka-3.9.1
SPARK_KAFKA := .peers/spark-kafka-4.2.0
SPARK_KAFKAS := $(SPARK_KAFKA) .peers/spark-kafka-4.0.4 .peers/spark-kafka-4.1.3
DEMO_DATA ?= .demo

.PHONY: help setup compiled java demo test mutants test-java test-java-tools test-rights test-broker-options test-kafka test-differential test-connector-kafka test-kafka-versions test-connector-cluster audit-million top-picture demo-picture command-pictures test-console model lint bench bench-quick bench-starts bench-tasks bench-participants bench-cost trace-micro-batch bench-codec bench-scale dump-segments dump-upkept docs docs-pages test-docs newcomer stories fuzz clean crash-log soak-crash soak-kill9 soak-stateful soak-hostile soak-copy soak-copy-cluster soak-sources histories histories-spark soak-kill test-ends test-beginnings map test-rehearse-kafka test-connector-kfake simulate test-kerberos test-checkpoint test-object-store test-spark-version test-spark-versions soak-fanout test-fanout round certify test-luck test-monitoring

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY) $(TYPED) java  ## create .venv with eoslog and its pinned development dependencies, look for Java

$(READY): setup.cfg pyproject.toml
	@test -n "$(PYTHON)" || { echo "eoslog needs Python 3.11 or later: install it, or say make PYTHON=/path/to/python"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null && $(PYTHON) -m venv .venv; \
		else echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)"; exit 1; fi; }
	@echo "installing eoslog, PySpark and what the tests need into .venv: a minute or two, mostly downloads"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m compileall -q eoslog broker client connector protocol  # as pip does for users; it passes over links
	@touch $@
	@echo "ready: .venv/bin/eoslog, or . .venv/bin/activate"

$(TYPED): $(READY) packaging/message_types.py $(wildcard protocol/*.py protocol/messages/*.py)
	@$(BIN)/python packaging/message_types.py

compiled: $(READY)
	@$(BIN)/python -m compileall -q eoslog broker client connector protocol

java:
	@major=$$(java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p'); \
	if [ "$${major:-0}" -lt 17 ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing openjdk-17-jre-headless (Spark needs Java 17 or later)"; \
			apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null; \
		else echo "Spark needs Java 17 or later: install it (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; fi; fi

demo: setup  ## the main job: a year of flights through a pipeline that is killed repeatedly (GUARANTEE=at_least_once shows the duplicates)
	@$(BIN)/python -m examples.flights.run --guarantee $(GUARANTEE) --data $(DEMO_DATA) $(DEMO_ARGS)

test: setup  ## all tests (WORKERS=3: processes; most tests wait more than they work)
	$(BIN)/python -m pytest -n $(or $(WORKERS),3) --dist loadfile --no-loadscope-reorder --durations 40 --durations-min 15 $(TEST_ARGS)

lint: $(READY) $(TYPED) docs  ## ruff, mypy (strict; tests and examples too), the import rules, the docs as a site and their words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --config-file setup.cfg -p eoslog -p benchmarks -p tests -p examples
	$(BIN)/lint-imports --config setup.cfg --no-logo --no-cache
	$(BIN)/python -m pytest -q tests/docs/test_words.py

test-luck: setup  ## all tests in random order on a busy machine, RUNS=5 times: lists what fails once (SEED=n TEST_ARGS="tests/client")
	$(BIN)/python -u -m tests.luck --runs $(or $(RUNS),5) $(if $(SEED),--seed $(SEED)) --workers $(or $(WORKERS),3) -- $(TEST_ARGS)

round: setup  ## the targets that were run longest ago, for MINUTES=20; notes the outcome in docs/rounds.md (ONLY="soak-kill test-kafka")
	$(BIN)/python -u -m tests.rounds --minutes $(or $(MINUTES),20) $(if $(ONLY),--only $(ONLY))

certify: setup $(KAFKA)  ## what this project claims, run as a whole within 60 minutes: demo, tests, histories, kills on both brokers, stock clients; writes a table of docs/evidence.md
	$(BIN)/python -u -m tests.rounds --certify

model: $(READY)  ## explore the commit protocol's model more deeply than the suite does: DEPTH=2 faults a history, MINUTES=10, SEED=1
	$(BIN)/python -m tests.connector.commit.model_judge --depth $(or $(DEPTH),2) --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1)

mutants: $(READY)  ## break rules one by one, in copies, and list the breaks that no test notices (ONLY="produce.py decide.py" JOBS=2)
	$(BIN)/python -m tests.mutants.run --jobs $(or $(JOBS),2) $(ONLY)

map: $(READY)  ## rooms, arrows and circles of the sources, longest class, lines (MAP_ARGS="--circles --api FETCH --json")
	@$(BIN)/python -m tests.house.map $(MAP_ARGS)

histories: $(READY)  ## random histories of what people do to queries, without Spark: HISTORIES=100000 SEED=1 MINUTES=60
	$(BIN)/python -m tests.histories.run_histories --histories $(or $(HISTORIES),100000) --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1)

histories-spark: $(READY)  ## a few dozen such histories with real Spark and the bundled broker: HISTORIES=24 SEED=1 MINUTES=60
	$(BIN)/python -m tests.histories.run_histories_spark --histories $(or $(HISTORIES),24) --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1)

crash-log: $(READY)  ## crash a log at every change of the disk, while it is compacted and trimmed (LIVES=3)
	EOSLOG_CRASH_STRIDE=1 EOSLOG_CRASH_LIVES=$(or $(LIVES),3) $(BIN)/python -m pytest -q -s --timeout 0 -k crash_at tests/broker/log/test_log_upkeep_model.py

soak-crash: $(READY)  ## crash the broker at random points of random work for MINUTES=5 (on a disk in memory; SEED=n repeats a run)
	$(BIN)/python -m tests.crash.crash_lives --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED))

soak-kill9: $(READY)  ## ROUNDS=5 of kill -9 and power loss while stock clients work (SEED=n repeats a run)
	$(BIN)/python -m tests.crash.soak_kill9 --rounds $(or $(ROUNDS),5) $(if $(SEED),--seed $(SEED))

soak-stateful: $(READY) $(if $(filter kafka,$(BROKER)),$(KAFKA))  ## kill stateful queries at random (KILLS=6 SEED=n QUERIES="..." BROKER=kafka GUARANTEE=at_least_once; LOSE=1: with checkpoints deleted, EVERY=3)
	$(BIN)/python -m tests.stateful.soak_stateful --kills $(or $(KILLS),6) --guarantee $(GUARANTEE) --broker $(or $(BROKER),eoslog) \
		$(if $(SEED),--seed $(SEED)) $(if $(QUERIES),--queries $(QUERIES)) $(if $(LOSE),--lose) $(if $(EVERY),--every $(EVERY))

SOAK_COPY := nice -n 5 $(BIN)/python -u -m tests.soaks

soak-hostile: setup compiled  ## all that hostile clients can do at once, for MINUTES=60; measures a good client's waits and the broker's memory (HOSTILE_ARGS="--only deaf,bombs")
	$(BIN)/python -u -m tests.soaks.soak_hostile --minutes $(or $(MINUTES),60) $(HOSTILE_ARGS)

soak-copy: setup $(KAFKA) $(SPARK_KAFKA)  ## copy 200,000 rows, the driver killed 20 times, with eoslog and with Spark's connector (SEED=n)
	$(SOAK_COPY).soak_copy $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

soak-copy-cluster: setup $(KAFKA)  ## the same copy on three Apache Kafka nodes, killed in turn, and all but one at once (SEED=n)
	$(SOAK_COPY).soak_copy_cluster $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

soak-sources: setup  ## sources with names, added, removed, renamed and exchanged at random under living checkpoints, in a real Spark (MINUTES=10 SEED=n)
	$(BIN)/python -u -m tests.soaks.soak_sources --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

JDBC := .peers/postgresql-42.7.4.jar

$(JDBC):
	@command -v mvn >/dev/null || { echo "PostgreSQL's JDBC driver comes by Maven: install it (Debian: apt-get install maven)"; exit 1; }
	mvn -q dependency:copy -Dartifact=org.postgresql:$(subst -,:,$(basename $(@F))) -DoutputDirectory=$(CURDIR)/.peers

soak-fanout: setup $(JDBC)  ## fan out 200,000 rows to Delta, Iceberg and PostgreSQL tables and a topic, the driver killed 20 times, the server four times, with eoslog.fanout and with plain writers (SEED=n SOAK_ARGS="--rows 20000 --kills 5")
	$(BIN)/python -u -m tests.fanout.soak_fanout --jdbc $(JDBC) $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

test-fanout: setup  ## fan-outs in a real Spark: new checkpoints, other rows, changed columns, kills at each step
	$(BIN)/python -m pytest -q -m "long" tests/fanout

soak-kill: setup $(if $(filter nodes,$(BROKER)),$(KAFKA))  ## kill everything for hours, and check each round (KILLS=1000 SEED=n BROKER=nodes SOAK_ARGS="--kinds ...")
	nice -n 5 $(BIN)/python -u -m tests.kills.soak_kill --kills $(or $(KILLS),1000) --broker $(or $(BROKER),bundled) \
		$(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

bench-codec: $(READY)  ## measure the vectorised codec's records a second, on one core
	$(BIN)/python -m benchmarks.codec --check

.peers/kafka-%:
	@command -v mvn >/dev/null || { echo "Kafka's tools come by Maven: install it (Debian: apt-get install maven)"; exit 1; }
	mvn -q -f benchmarks/kafka-tools.xml dependency:copy-dependencies -Dkafka.version=$* \
		-DoutputDirectory=$(CURDIR)/$@.part
	mv $@.part $@

.peers/spark-kafka-%:
	@command -v mvn >/dev/null || { echo "Spark's Kafka connector comes by Maven: install it (Debian: apt-get install maven)"; exit 1; }
	mvn -q -f benchmarks/spark-kafka.xml dependency:copy-dependencies -Dspark.version=$* \
		-DoutputDirectory=$(CURDIR)/$@.part
	mv $@.part $@

dump-segments: $(READY) $(KAFKA)  ## read every segment of the demo with Kafka's own DumpLogSegments
	$(BIN)/python -m tests.broker.log.dump_segments --kafka $(KAFKA) --data $(DEMO_DATA)/broker

dump-upkept: $(READY) $(KAFKA)  ## the same with logs that were compacted and trimmed
	rm -rf .upkept && $(BIN)/python -m tests.broker.log.dump_segments --kafka $(KAFKA) --data .upkept --fill && rm -rf .upkept

bench-scale: compiled  ## measure the broker with more and more partitions, transactional ids and connections
	$(BIN)/python -m benchmarks.scale

bench: compiled java $(KAFKA) $(SPARK_KAFKAS) $(BENCH_SPARK:%=.peers/pyspark-%)  ## compare everything with its peers, in turns; writes docs/benchmarks.md and benchmark-tables.md (BENCH_ARGS="--only spark-source" BENCH_SPARK=4.0.5)
	$(BENCH_SPARK:%=PYTHONPATH=$(CURDIR)/.peers/pyspark-%) $(BIN)/python -m benchmarks.run $(BENCH_ARGS)

bench-tasks: compiled java $(KAFKA) $(SPARK_KAFKA)  ## compare micro-batches of ten rows a task, with 10 to 4,000 tasks, with Spark's Kafka connector (TASKS_ARGS="--tasks 10 100")
	$(BIN)/python -m benchmarks.many_tasks $(TASKS_ARGS)

bench-participants: compiled java $(KAFKA)  ## measure begin and commit of a micro-batch of many tasks, also after a kill, on the bundled broker and on Apache Kafka with one node and three (PARTICIPANTS_ARGS="--participants 10 100")
	$(BIN)/python -m benchmarks.simulate --participants 10 100 1000 4000 $(PARTICIPANTS_ARGS)

simulate: compiled java $(KAFKA)  ## foretell micro-batches of many tasks from the costs of single commands, measure them, and fail outside 25 %; kill a node (SIMULATE_ARGS="--on 'one Kafka node' --write")
	$(BIN)/python -m benchmarks.simulate $(SIMULATE_ARGS)
	$(BIN)/python -m benchmarks.simulate --lose-a-node

bench-cost: compiled java $(KAFKA) $(SPARK_KAFKA)  ## compare CPU and memory of a small stream with Spark's Kafka connector and a source and sink that do nothing
	$(BIN)/python -m benchmarks.starts --cost

trace-micro-batch: compiled java $(KAFKA) $(SPARK_KAFKA)  ## draw one small micro-batch, with a lane for each process (TRACE_ARGS="--kafka .peers/kafka-4.3.1 --light --tasks --to FILE")
	$(BIN)/python -m benchmarks.trace_micro_batch $(TRACE_ARGS)

bench-starts: compiled java $(KAFKA) $(SPARK_KAFKA)  ## time a program from prompt to prompt, and from start() to the first rows, with and without `eoslog-python`, and with Spark's Kafka connector (STARTS_ARGS="--turns 6")
	$(BIN)/python -m benchmarks.starts $(STARTS_ARGS)

bench-quick: compiled java $(KAFKA) $(SPARK_KAFKA)  ## make bench within five minutes: less work, fewer turns, nothing written
	$(BIN)/python -m benchmarks.run --quick $(BENCH_ARGS)

SCENARIOS := $(BIN)/python -m pytest tests/scenarios
ALL_CLIENTS := --scenario-clients=confluent-kafka,kafka-python,aiokafka,java

test-java: setup $(KAFKA)  ## the client scenarios with Kafka's Java client
	$(SCENARIOS) --scenario-clients=java $(TEST_ARGS)

test-java-tools: setup $(KAFKA)  ## Kafka's own command line tools, on eoslog and on Apache Kafka
	$(SCENARIOS)/test_kafka_tools.py -m kafka $(TEST_ARGS)

test-rights: setup $(KAFKA)  ## each API with each right alone and each right missing: eoslog refuses what Apache Kafka refuses
	$(SCENARIOS)/test_kafka_rights.py -m kafka -s $(TEST_ARGS)

test-broker-options: setup $(KAFKA)  ## options of listeners, TLS and SASL of a running broker: eoslog and Apache Kafka take, refuse and tell the same
	$(SCENARIOS)/test_kafka_broker_options.py -m kafka -s $(TEST_ARGS)

test-kerberos: setup $(KAFKA)  ## Kerberos logins with a real KDC, on the bundled broker and on Apache Kafka: the client, and a Spark that is killed
	@if ! PATH=$$PATH:/usr/sbin command -v krb5kdc faketime kinit >/dev/null || [ ! -e /usr/include/gssapi.h ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing krb5-kdc, krb5-admin-server, krb5-user, libkrb5-dev, faketime"; apt-get update -qq; \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc krb5-kdc \
				krb5-admin-server krb5-user libkrb5-dev faketime >/dev/null; \
		else echo "this test needs MIT Kerberos' KDC, its headers and faketime: install them (Debian: apt-get install gcc krb5-kdc krb5-admin-server krb5-user libkrb5-dev faketime)"; exit 1; fi; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[kerberos]'
	$(BIN)/python -m pytest -q -m "kerberos or kafka" tests/client/test_kerberos*.py $(TEST_ARGS)

test-monitoring: setup java $(KAFKA)  ## metrics of queries, the alert rules, those of stuck queries and readers on both brokers, and the dashboard's queries with a real Prometheus
	@if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing prometheus"; apt-get update -qq; \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null; \
		else echo "this test needs Prometheus: install it (Debian: apt-get install prometheus)"; exit 1; fi; fi
	$(BIN)/python -m pytest -q -m "long or not long" tests/connector/test_progress.py $(TEST_ARGS)
	EOSLOG_TEST_BROKER=kafka $(BIN)/python -m pytest -q -m long tests/connector/test_progress.py

.PHONY: monitoring-pictures
monitoring-pictures: setup java $(KAFKA)  ## pictures of Prometheus that watches living queries, and of its alerts on both brokers, in docs/pictures (Debian: prometheus, chromium, chromium-driver)
	$(BIN)/python -m tests.connector.monitoring_pictures
	$(BIN)/python -m tests.connector.monitoring_pictures --kafka $(KAFKA)

test-kafka: setup $(KAFKA)  ## the client scenarios with all clients on Apache Kafka and on eoslog, compared
	$(SCENARIOS) --scenario-broker=kafka $(ALL_CLIENTS) --scenario-seen=.peers/seen-kafka.json $(TEST_ARGS)
	$(SCENARIOS) $(ALL_CLIENTS) --scenario-seen=.peers/seen-eoslog.json $(TEST_ARGS)
	$(BIN)/python -m tests.scenarios.compare_seen .peers/seen-eoslog.json .peers/seen-kafka.json docs/transactions.md
	$(BIN)/python -m pytest -q -m kafka tests/broker/handlers/test_hostile_batches.py tests/histories/test_three_memories_kafka.py

audit-million: setup $(if $(filter kafka,$(BROKER)),$(KAFKA))  ## check that eoslog audit finds one lost, doubled or swapped record in a million, within a minute and 200 MB (BROKER=kafka)
	$(BIN)/python -u -m tests.audit.million --broker $(or $(BROKER),eoslog) $(AUDIT_ARGS)

.PHONY: prove-million
prove-million: setup  ## check that eoslog prove proves a sink of a million rows, and finds one lost row of a copy, within a minute and 200 MB (PROVE_ARGS="--records 10000000")
	$(BIN)/python -u -m tests.prove.million $(PROVE_ARGS)

.PHONY: shadow-million
shadow-million: setup  ## check that eoslog shadow report finds one lost or doubled row of a shadow in a million, within a minute and 200 MB (SHADOW_ARGS="--records 10000000")
	$(BIN)/python -u -m tests.shadow.million $(SHADOW_ARGS)

.PHONY: test-state bench-state state-million soak-take-over
state-million: setup  ## save and restore the state of a query that counts a million keys, within 200 MB (STATE_ARGS="--records 10000000")
	$(BIN)/python -u -m tests.stateful.million_keys $(STATE_ARGS)

soak-take-over: setup  ## a version of a query with state takes over from the living one, 50 times under load; no window is lost, doubled or wrong (SOAK_ARGS="--take-overs 20 --kills --seed 2")
	$(BIN)/python -u -m tests.stateful.soak_take_over $(SOAK_ARGS)

soak-shadows: setup  ## shadows with other states take over from the living version, 50 times under load (SOAK_ARGS="--take-overs 20 --live --kills --seed 2")
	$(BIN)/python -u -m tests.shadow.soak_shadows $(SOAK_ARGS)

test-state: setup  ## lose the checkpoint of a query of each stateful operator, and of one in each state store
	$(BIN)/python -m pytest -q -m "long or not long" tests/stateful/test_stateful.py

bench-state: setup  ## what it costs to save a query's state every 1, 10 and 100 micro-batches
	$(BIN)/python -u -m benchmarks.saved_state

.PHONY: soak-hand-over
soak-hand-over: setup  ## a query takes over from the living one, 50 times under load; no row is lost or doubled, no reader waits for longer than a batch takes (SEED=n SOAK_ARGS="--hand-overs 20 --kills")
	$(BIN)/python -u -m tests.kills.soak_hand_over $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

.PHONY: audit-tables-million
audit-tables-million: setup  ## check that eoslog audit finds one row lost, doubled or altered in Parquet, Delta and Iceberg tables of a million, within a minute and 200 MB (AUDIT_ARGS="--records 10000000")
	$(BIN)/python -u -m tests.audit.million_tables $(AUDIT_ARGS)

top-picture: $(READY)  ## make docs/pictures/top.svg: eoslog top on a working broker
	$(BIN)/python -m tests.top.picture

command-pictures: setup $(KAFKA) .peers/kfake  ## make the pictures of eoslog audit, checkpoint, shadow and rehearse, on three clusters, in docs/pictures
	$(BIN)/python -m tests.docs.terminal_pictures

demo-picture: setup  ## make docs/pictures/demo.svg: the output of a whole make demo
	$(BIN)/python -m tests.examples.demo_picture --data $(DEMO_DATA) $(DEMO_ARGS)

test-differential: setup $(KAFKA) $(SPARK_KAFKA)  ## the same queries through Spark's kafka and eoslog in one session on Apache Kafka (DRAWS=n SEED=n)
	$(if $(DRAWS),DRAWS=$(DRAWS)) $(if $(SEED),SEED=$(SEED)) $(BIN)/python -m pytest -q -s --timeout 0 -m kafka tests/connector/differential $(TEST_ARGS)

test-connector-kafka: setup $(KAFKA)  ## the connector's tests on Apache Kafka; the crash table and the writer by both transaction protocols (OFFSET_LOG=2: the crash table with named sources)
	EOSLOG_TEST_BROKER=kafka $(if $(OFFSET_LOG),EOSLOG_TEST_OFFSET_LOG=$(OFFSET_LOG)) $(BIN)/python -m pytest -q --timeout 600 tests/connector tests/shadow $(TEST_ARGS)
	$(BIN)/python -m pytest -q -m kafka tests/client tests/connector/options
	EOSLOG_TEST_BROKER=kafka EOSLOG_TEST_TRANSACTION_VERSION=1 $(BIN)/python -m pytest -q --timeout 600 \
		$(addprefix tests/connector/,crashes/test_crash_table.py sink/test_writer_spark.py sink/test_writer_disturbed.py run/test_writer_markers.py) $(TEST_ARGS)

.peers/kfake: $(wildcard tests/kfake/*.go tests/kfake/go.*)
	@command -v go >/dev/null || { echo "kfake is built from a Go module: install Go 1.26 or later"; exit 1; }
	@mkdir -p .peers
	cd tests/kfake && go build -o $(CURDIR)/$@ .

test-connector-kfake: setup .peers/kfake  ## the connector on franz-go's kfake: what works there, and what stops loudly
	$(BIN)/python -m pytest -q --timeout 600 -m "kafka or long" tests/kfake $(TEST_ARGS)

VERSIONS ?= 3.3.2 3.5.2 3.7.2 3.9.1 4.0.0 4.3.1

test-kafka-versions: setup $(VERSIONS:%=.peers/kafka-%)  ## the connector's tests, the crash table and a copy under kills on versions of Apache Kafka; makes a table of docs/evidence.md (VERSIONS="3.9.1" VERSIONS_ARGS="--suites copy --levels 2", or "--missing --minutes 8", "--failed")
	$(BIN)/python -u -m tests.versions.run_kafka_versions $(VERSIONS) $(VERSIONS_ARGS)

test-connector-cluster: setup $(KAFKA) $(OLD_KAFKA)  ## queries on three Apache Kafka nodes that are killed, upgraded, or whose leaders move, in mid-batch
	$(BIN)/python -m pytest -q -s --timeout 900 -m kafka tests/connector/cluster $(TEST_ARGS)

test-rehearse-kafka: setup $(KAFKA) .peers/kafka-4.0.0  ## eoslog rehearse on Apache Kafka, under both transaction protocols, and on brokers that are broken on purpose
	$(BIN)/python -m pytest -q --timeout 600 -m "kafka or long" tests/rehearse $(TEST_ARGS)

.PHONY: test-rehearse-versions
test-rehearse-versions: setup $(VERSIONS:%=.peers/kafka-%)  ## eoslog rehearse on versions of Apache Kafka; makes a table of docs/evidence.md (VERSIONS="3.9.1 4.0.0")
	$(BIN)/python -u -m tests.rehearse.run_versions $(VERSIONS)

test-executors: setup  ## executors, workers and driver processes killed, speculation, topics that change (ROUNDS=n)
	$(if $(ROUNDS),EOSLOG_EXECUTORS_ROUNDS=$(ROUNDS)) $(BIN)/python -m pytest -q -s --timeout 0 -m "spark or long" tests/connector/executors/test_losses.py $(TEST_ARGS)

test-upgrade: setup  ## open data directories and checkpoints that earlier versions have left, and go back to those versions with what this one wrote
	$(BIN)/python -m pytest -q --timeout 0 -m "long or not long" tests/upgrade $(TEST_ARGS)

test-ends: setup  ## queries stopped at ten moments of a batch, signals to the application, failing tasks and writes
	$(BIN)/python -m pytest -q -s --timeout 0 -m long tests/connector/run/test_orderly_end.py $(TEST_ARGS)

test-beginnings: setup  ## queries killed in their first batch, and then given other startingOffsets, in a real Spark
	$(BIN)/python -m pytest -q --timeout 900 -m long tests/connector/checkpoint $(TEST_ARGS)

test-checkpoint: setup  ## eoslog checkpoint on checkpoints of killed queries: eoslog audit counts what each edit has foretold
	$(BIN)/python -m pytest -q --timeout 0 -m long tests/checkpoint --ignore tests/checkpoint/test_object_store.py $(TEST_ARGS)

S3A := .peers/hadoop-aws-3.5.0

$(S3A):
	@command -v mvn >/dev/null || { echo "Hadoop's S3A comes by Maven: install it (Debian: apt-get install maven)"; exit 1; }
	mvn -q -f benchmarks/hadoop-aws.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$@.part
	mv $@.part $@

GCS := .peers/fake-gcs-server
AZURITE := .peers/azurite-3.37.0

$(GCS):
	@command -v go >/dev/null || { echo "fake-gcs-server is built from a Go module: install Go 1.26 or later"; exit 1; }
	GOBIN=$(CURDIR)/.peers go install github.com/fsouza/fake-gcs-server@v1.56.1

$(AZURITE):
	@command -v npm >/dev/null || { echo "Azurite comes by npm: install it (Debian: apt-get install npm)"; exit 1; }
	npm install --silent --no-fund --no-audit --prefix $@.part azurite@3.37.0
	mv $@.part $@

test-object-store: setup $(S3A) $(GCS) $(AZURITE)  ## checkpoints in object stores (S3, Google's, Azure's) and audited tables (S3): a query that is killed, and eoslog checkpoint and audit
	$(BIN)/python -m pytest -q --timeout 0 -m long tests/checkpoint/test_object_store.py \
		tests/connector/checkpoint/test_object_store_spark.py tests/audit/test_table_command.py $(TEST_ARGS)

docs: $(READY)  ## build the docs as a site in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test-console: setup  ## the web console in a real headless browser; makes its pictures in docs/pictures
	@if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing chromium and chromium-driver"; \
			apt-get update -qq && apt-get install -y -qq chromium chromium-driver >/dev/null; \
		else echo "the browser test needs Chromium and its driver: install them (Debian: apt-get install chromium chromium-driver)"; exit 1; fi; fi
	$(BIN)/python -m pytest -q --timeout 600 -m browser tests/console $(TEST_ARGS)

docs-pages: $(READY)  ## make the pages of docs/ that are made from the code
	$(BIN)/python -m docs.pages

.PHONY: test-examples
test-examples: setup $(KAFKA) $(SPARK_KAFKA)  ## the examples that start Spark, the notebook, and the mirror to Apache Kafka and back
	$(BIN)/python -m pytest -q --durations=0 -m "kafka or long" tests/examples $(TEST_ARGS)

test-docs: setup  ## the pages of the docs whose blocks start queries, typed from top to bottom
	$(BIN)/python -m pytest -q --timeout 900 -m long tests/docs $(TEST_ARGS)

stories: setup $(KAFKA) $(SPARK_KAFKA)  ## what people come for, typed as in the docs, each with the seconds it takes (STORIES="avro notebook")
	$(BIN)/python -u -m tests.docs.run_stories $(STORIES)

newcomer: setup  ## README's first section, typed in an empty folder: first rows in under five minutes (PROJECT=own: with a wheel)
	$(BIN)/python -u -m tests.docs.newcomer $(if $(filter own,$(PROJECT)),--own)

.PHONY: dist jar
dist: $(READY)  ## build the wheel and the sdist, in dist/
	$(BIN)/python packaging/build_dist.py

jar: dist  ## build the jar for spark-submit --packages, in a Maven repository in build/maven/
	$(BIN)/python packaging/build_jar.py dist/*.whl

.PHONY: test-packages check-release
test-packages: setup  ## wheel, sdist and jar in empty environments with PySpark 4.0 to 4.3: queries, killed and resumed
	$(BIN)/python -m pytest -q --timeout 0 -m packages tests/packages $(TEST_ARGS)
	$(BIN)/python -m pytest -q --timeout 300 -m long tests/connector/spark/test_spark_connect.py

.peers/pyspark-%: | $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@.part "pyspark==$*"
	mv $@.part $@

SPARK ?= 4.0.5
OTHER_SPARK := PYTHONPATH=$(CURDIR)/.peers/pyspark-$(SPARK) $(BIN)/python -m pytest -q --timeout 900

test-spark-version: setup .peers/pyspark-$(SPARK)  ## the tests that start Spark, with another PySpark (SPARK=4.1.4)
	$(OTHER_SPARK) -m spark tests/connector tests/checkpoint tests/histories $(TEST_ARGS)
	$(OTHER_SPARK) -m long tests/connector/spark/test_spark_connect.py $(TEST_ARGS)

OWN_SPARK := 4.3.0  # of .venv
SPARKS ?= 4.0.5 4.1.4 4.2.1 $(OWN_SPARK)

test-spark-versions: setup $(patsubst %,.peers/pyspark-%,$(filter-out $(OWN_SPARK),$(SPARKS))) $(KAFKA) $(SPARK_KAFKAS)  ## the judges that start Spark, with the newest PySparks from 4.0 on; makes a table of docs/evidence.md (SPARKS="4.0.5" SPARKS_ARGS="--suites 'crash table;shadow'", or "--missing")
	$(BIN)/python -u -m tests.versions.run_spark_versions $(SPARKS) $(SPARKS_ARGS)

check-release: setup  ## check what would be released, from a fresh clone to README's first section in an empty environment (FINAL=1)
	$(BIN)/python packaging/check_release.py $(if $(FINAL),--final)

fuzz: $(READY)  ## send a million damaged requests to the broker (FUZZ_ARGS="--inputs N --seed N")
	$(BIN)/python -u -m tests.broker.fuzz.fuzzed_broker $(FUZZ_ARGS)

clean:  ## remove what the other targets made
	rm -rf .venv build dist .demo .peers .mypy_cache .ruff_cache *.egg-info
