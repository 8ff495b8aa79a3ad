"""The process that Spark forks Python workers from, with everything heavy imported and compiled before."""

from pyspark.daemon import manager

from afspark.runtime.warmup import warm_up

if __name__ == "__main__":
    warm_up()
    manager()
