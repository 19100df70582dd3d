"""``python -m midstream``: the command line."""

from midstream.cli.app import main

if __name__ == "__main__":
    main()
