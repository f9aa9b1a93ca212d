"""The web console: shows the broker in a browser; served if `console.listen` is set.

| file | what |
|---|---|
| `start` | from the broker's options to a running console, or the reason why there is none |
| `server` | HTTP by aiohttp in a thread with its own event loop; everything is bounded |
| `login` | pure: which Host and origin may ask; the listener's mechanisms behind HTTP's Basic and Bearer |
| `broker_access` | calls the broker's handlers through its authorization, as a client would |
| `topics`, `messages`, `groups`, `transactions`, `rates` | the data, as JSON |
| `static/` | the page itself: no build step, no external resources |

Nothing here is imported unless the option is set.
"""
