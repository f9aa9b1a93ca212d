"""The web console: a look at the broker with a browser, served on request (`console.listen`).

| file | what |
|---|---|
| `start` | from the broker's options to a running console, or to why there is none |
| `server`, `watch` | HTTP by aiohttp in a thread with an event loop of its own; everything bounded |
| `doors` | pure rules: which Host, which origin, which address without authentication |
| `login` | who asks: the listener's own SASL mechanisms behind HTTP's Basic and Bearer |
| `inside` | asks the broker as a client would, by its handlers and through its access rules |
| `topics`, `messages`, `groups`, `transactions`, `aborts`, `rates` | what is shown, as JSON |
| `shown` | pure: bytes as text, JSON or hex |
| `static/` | the page itself: no build, nothing from elsewhere |

Nothing here is imported unless the option is set.
"""
