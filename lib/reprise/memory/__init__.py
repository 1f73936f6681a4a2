"""Memory that learns from mistakes (Mistake Notebook Learning), and practice without tasks (DAEDALUS).

| section of the paper | file |
|---|---|
| 3.2 entries, five-part guidance | `notes` |
| 3.2 retrieval | `retrieval`, `embedders` |
| 3.3 accept if it improves | `gate` |
| 3 the loop over batches | `loop`, `settings`, `working`, `items` |
| what a note is worth | `credit` |
| language models as policy and tuner | `chat_policy`, `tuner`, `prompts`, `replies` |
| the memory on disk | `store`, `legacy` |
| databases of one's own | `spider` |
| DAEDALUS, practice before any task | `practice` |
"""
