"""What benchmarks compute is tested with the studies: `make test` is for the library. Importing takes seconds, too."""


def pytest_ignore_collect(collection_path, config):
    return True if config.option.markexpr == "not study" else None
