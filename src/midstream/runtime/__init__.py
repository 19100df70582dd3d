"""What surrounds an executor while a query runs: windows, recovery, commands and reports. Knows nothing of Spark."""
