"""The least that a Python process can do before it says something. A child process."""

if __name__ == "__main__":
    print("ready", flush=True)
