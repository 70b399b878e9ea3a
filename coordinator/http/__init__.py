"""The service over HTTP: its routes, its access rules, and its address.

- app: the routes
- doors: the checks of every request (access, rate, number at once, size); connections: their number and times
- access, tokens: who may ask for what; tls: certificates; access_log
- lanes: threads, a bounded number for each kind of request; waiting: requests that wait for steps
- pushes: rows in; changes: the changes of a view
- rendering: rows as JSON and Arrow
- section: the settings [http]
- docs_page: the page that describes the routes
- observing: history, dataflow, settings in force and log, for the console
- pages: the console (built from `console/src` into `console/bundle`), and `/docs`
- listen: the address where the service listens; identity: the check that a found service is the expected one
"""
