"""YOURS: the model."""

from torch import nn

from .backend import Model, Tensor
from .settings import DataFacts, ModelSettings


class ConvNet(nn.Module):
    """Convolutions with GroupNorm, which, unlike BatchNorm, gives the same result on any number of processes."""

    def __init__(self, settings: ModelSettings, facts: DataFacts) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = facts.image_shape[2]
        for stage in range(settings.stages):
            width = settings.width * 2**stage
            for level in range(settings.depth):
                stride = 2 if stage > 0 and level == 0 else 1
                convolution = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
                layers += [convolution, nn.GroupNorm(4, width), nn.ReLU()]
                channels = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, len(facts.labels))

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """image: float32 [B, H, W, C] in [0, 1] -> logits [B, labels]."""
        images = batch["image"].permute(0, 3, 1, 2).contiguous() * 2 - 1
        return {"logits": self.head(self.features(images).mean((2, 3)))}


def build_model(settings: ModelSettings, facts: DataFacts) -> Model:
    return ConvNet(settings, facts)
