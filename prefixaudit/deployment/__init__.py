"""What is deployed: prefixaudit.toml, the model folder, and what the log doesn't record.

`load_deployment` reads a file (docs in `prefixaudit.deployment.file`) and options that win over
it. `Deployment.complete` fills a request's identity; what neither the log nor the deployment
knows stays UNKNOWN.

value        Deployment, and how it completes a request
loading      that of a command: a file or none; overriding: options win over the file
file         prefixaudit.toml; its tables: model_table, hardware, servers, tiers, tenant, adapters,
             public, policy, events
reading      deployment files of any kind; sources: one file a kind
settings     names of server settings; server_identity: what they say of requests
model_folder what config.json says; blocks: how large an engine's blocks are for it
"""

from prefixaudit.deployment.loading import DEPLOYMENT_FILE, find_deployment, load_deployment
from prefixaudit.deployment.tenant import TenantRule, key_digest
from prefixaudit.deployment.value import Capacity, Deployment, Overrides, Rendering

__all__ = [
    "DEPLOYMENT_FILE",
    "Capacity",
    "Deployment",
    "Overrides",
    "Rendering",
    "TenantRule",
    "find_deployment",
    "key_digest",
    "load_deployment",
]
