"""Evidence before action: was every state-changing call of an agent supported by what it had observed?
(SafeActBench)"""
