"""ApiVersions: what this broker serves. A client picks the newest version that both sides know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.dispatch import API_VERSIONS
from goqueue.wire.schema import api_key, responses

_R = responses(API_VERSIONS)
_UNSUPPORTED_VERSION = 35
# Finalized features tell clients which protocols the whole cluster has agreed on: KIP-890 and KIP-848.
_FEATURES = {"transaction.version": (0, 2), "group.version": (0, 1)}
_FEATURES_EPOCH = 1


class VersionsApi:
    def __init__(self) -> None:
        self._served: Sequence[Api] = ()

    def apis(self) -> list[Api]:
        return [Api(API_VERSIONS, 0, 4, self.api_versions)]

    def announce(self, served: Sequence[Api]) -> None:
        """All APIs, this one among them."""
        self._served = sorted(served, key=lambda api: api_key(api.name))

    async def api_versions(self, call: Call, request: Any) -> Answer:
        error_code = _UNSUPPORTED_VERSION if request is None else 0
        keys = [
            _R.ApiVersion(
                api_key=api_key(api.name),
                min_version=api.first if api.advertised_first is None else api.advertised_first,
                max_version=api.last,
            )
            for api in self._served
        ]
        return _R.ApiVersionsResponse(
            error_code=error_code,
            api_keys=keys,
            supported_features=[
                _R.SupportedFeatureKey(name=name, min_version=first, max_version=last)
                for name, (first, last) in _FEATURES.items()
            ],
            finalized_features_epoch=_FEATURES_EPOCH,
            finalized_features=[
                _R.FinalizedFeatureKey(name=name, min_version_level=last, max_version_level=last)
                for name, (_, last) in _FEATURES.items()
            ],
        )
