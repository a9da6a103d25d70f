"""The shell: owns clock, disk and tasks, and runs `core` over `log`."""
