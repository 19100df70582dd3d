"""Delta tables, without Spark. Results become a table: cells write files, the driver commits their names.

    results ─▶ result_files (parquet, in the cells) ─▶ names, sizes, statistics ─▶ commits (delta-rs, in the driver)

A file counts when a transaction of the table names it, not before. Who may commit what is in ``commits``; what may be
removed is in ``orphans``. Streams that read a table find its files by ``added_files``.
"""
