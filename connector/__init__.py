"""The Spark side of eoslog: `format("eoslog")`.

Nothing here imports the broker; the connector talks to it over a socket, as to any Kafka.
Every process that gets a piece of the connector from Spark comes by here first, and says what it lacks.
"""

from eoslog.connector.spark.libraries import check_libraries

check_libraries()
