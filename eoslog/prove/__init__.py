"""`eoslog prove`: a document of what a sink has decided and what the logs hold of it, for an auditor.

`logs` reads what topics hold; `batches` judges a sink's decisions by that; `document` chains what was found
into lines, and compares them with a copy of the topics. The last two are pure.
"""
