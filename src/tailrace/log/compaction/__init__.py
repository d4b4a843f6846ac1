"""Compaction (`cleanup.policy` holds `compact`): of the records of a key the last one stays, offsets and order do too.

    plan      which log is dirty enough, up to which offset, and which segments become one
    keymap    the last offset of each key in the dirty part, within a bound of memory
    spans     where each record of a batch lies, without taking it apart
    rewrite   a batch without the records that a later one replaced
    swap      the new files take the place of the old ones, whatever moment the power fails
    run       one run over one log: all of it in small steps
    cleaner   which log is next, and where its dirty part begins

`Log` imports `swap` to finish what a crash interrupted; nothing here imports `Log`.
"""
