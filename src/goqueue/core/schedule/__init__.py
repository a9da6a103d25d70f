"""Schedules: the delayed records of one partition, each waiting until it is due, fired or cancelled."""
