"""YOURS: the model."""

from torch import nn

from .backend import Model, Tensor
from .settings import DataFacts, ModelSettings


class ConvNet(nn.Module):
    """Convolutions with GroupNorm, which, unlike BatchNorm, gives the same result on any number of processes."""

    def __init__(self, settings: ModelSettings, facts: DataFacts) -> None:
        super().__init__()
        width, channels = settings.width, facts.image_shape[2]
        self.features = nn.Sequential(
            block(channels, width),
            block(width, width),
            nn.MaxPool2d(2),
            block(width, 2 * width),
            block(2 * width, 2 * width),
        )
        self.head = nn.Linear(2 * width, len(facts.labels))

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """image: float32 [B, H, W, C] in [0, 1] -> logits [B, labels]."""
        images = batch["image"].permute(0, 3, 1, 2) * 2 - 1
        return {"logits": self.head(self.features(images).mean((2, 3)))}


def block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU())


def build_model(settings: ModelSettings, facts: DataFacts) -> Model:
    return ConvNet(settings, facts)
