"""The compiled kernel is optional: where no compiler is found, its Python twin in log/records.py serves."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("goqueue.log._kernel", ["src/goqueue/log/_kernel.c"], optional=True)])
