"""The web console: shows the broker in a browser; served if `console.listen` is set.

| file | what |
|---|---|
| `start` | from the broker's options to a running console, or the reason why there is none |
| `server`, `connection_limits` | HTTP by aiohttp in a thread with its own event loop; everything is bounded |
| `request_origin` | pure rules: which Host, which origin, which address without authentication |
| `login` | the caller: the listener's SASL mechanisms behind HTTP's Basic and Bearer |
| `broker_access` | calls the broker's handlers through its authorization, as a client would |
| `topics`, `messages`, `groups`, `transactions`, `aborts`, `rates` | the data, as JSON |
| `readable_bytes` | pure: bytes as text, JSON or hex |
| `static/` | the page itself: no build step, no external resources |

Nothing here is imported unless the option is set.
"""
