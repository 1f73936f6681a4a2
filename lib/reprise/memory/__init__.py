"""Memory that learns from mistakes (Mistake Notebook Learning), and practice without tasks (DAEDALUS).

| section of the paper | file |
|---|---|
| 3.2 entries, five-part guidance | `notes` |
| 3.2 retrieval | `retrieval` |
| 3.3 accept if it improves | `gate` |
| the memory on disk | `store` |
"""
