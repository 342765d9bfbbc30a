"""`python -m prefixaudit` is the command `prefixaudit`."""

from prefixaudit.cli import main

if __name__ == "__main__":
    main()
