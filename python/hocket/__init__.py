"""Language models in this process: the engine of hocket without its server.

    with hocket.Engine("models/hocket-tiny-qwen3-moe") as engine:
        print(engine.generate([{"role": "user", "content": "What is 7 + 5?"}], temperature=0).text)
"""

from ._engine import ChatTokens, Engine, ModelInfo, Output, Piece, Prompt, Sampling, Stream
from ._library import HocketError, version

__all__ = ["ChatTokens", "Engine", "HocketError", "ModelInfo", "Output", "Piece", "Prompt", "Sampling", "Stream", "version"]
__version__ = "0.1.0"
