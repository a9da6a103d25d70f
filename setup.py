"""The compiled kernels are optional: where no compiler is found, their Python twins in log/records.py,
log/gathering.py and log/columns.py serve."""

from setuptools import Extension, setup

LOG = "src/goqueue/log"

setup(
    ext_modules=[
        Extension(
            "goqueue.log._kernel",
            [f"{LOG}/_kernel.c", f"{LOG}/_keys.c"],
            depends=[f"{LOG}/_hashes.h", f"{LOG}/_keys.h", f"{LOG}/_records.h"],
            optional=True,
        ),
        Extension(
            "goqueue.log._columns",
            [f"{LOG}/_columns.c", f"{LOG}/_columns_encode.c"],
            depends=[f"{LOG}/_columns.h", f"{LOG}/_records.h"],
            optional=True,
        ),
    ]
)
