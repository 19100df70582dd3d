"""Delta tables, without Spark. Results become a table: cells write files, the driver commits their names.

    results ─▶ result_files (parquet, in the cells) ─▶ names, sizes, statistics ─▶ commits (delta-rs, in the driver)

A file is part of the table once a transaction names it, not before. ``commits`` decides who may commit what,
``orphans`` what may be removed. Streams that read a table find its files with ``added_files``.
"""
