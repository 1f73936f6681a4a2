"""Memory that learns from mistakes (Mistake Notebook Learning), and practice without tasks (DAEDALUS).

Where to find what the papers describe:

    3.2 entries e = (s, g, phi(s))              notes: Note, and Guidance, its five parts
    3.2 retrieval Ret(x, M)                     retrieval, embedders; z = x + Ret(x, M): prompts.with_notes
    3.3 accept if it improves                   gate.compare: Delta_B
    3 the loop over batches                     loop.MistakeNotebook: failures F, clusters by subject, update, second
                                                run; settings, working (M not yet committed), items (who plays a part)
    rewards R, a judge in place of labels       items: Judge, from_pairwise (two candidates), from_reward_fn (TRL)
    tuner and policy as language models         tuner (sigma, extraction, merging), chat_policy; prompts, replies
    what a note is worth                        credit
    the memory on disk                          store, legacy (the released code's files)
    databases of one's own                      spider
    DAEDALUS, practice before any task          practice: an explorer's tasks; repeated success keeps a heuristic

Source: Mistake Notebook Learning; DAEDALUS. The gate's error rates, the sequential gate and credits are ours.
"""
