"""Every API by its key's name, bound to the types of its messages.

At run time the APIs alone are here. Their types are in typed.pyi, which `make setup` makes from the schemas.
"""

from eoslog.protocol.apis import APIS

globals().update({key.name: api for key, api in APIS.items()})
