"""Word count with Spark: sentences in, running counts out, each sentence counted once.

Spark keeps the counts in its state store; each micro-batch adds the counts of all words to the target, so
the last record of a word is its count. Kill it when you like and start it again with its checkpoint.
"""

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--source", default="sentences")
    parser.add_argument("--target", default="word_counts")
    parser.add_argument("--checkpoint", default="./checkpoint")
    parser.add_argument("--rows-per-batch", type=int, default=100_000)
    parser.add_argument("--once", action="store_true", help="stop when all sentences are read")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    spark = SparkSession.builder.appName("word count").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    sentences = (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.rows_per_batch)
        .load()
    )
    words = sentences.select(F.explode(F.split(F.lower(F.col("value").cast("string")), r"\s+")).alias("word"))
    counts = words.where("word != ''").groupBy("word").count()
    query = (
        counts.selectExpr("word as key", "cast(count as string) as value")
        .writeStream.format("eoslog")
        .outputMode("complete")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("topic", args.target)
        .option("transactional.id", args.target)
        .option("checkpointLocation", args.checkpoint)
        .trigger(**{"availableNow": True} if args.once else {"processingTime": "1 second"})
        .start()
    )
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
