"""PyTorch modules as people write them, for the tests of the adapter."""

import torch
from torch import nn


class MLP(nn.Sequential):
    def __init__(self, inputs=64, hidden=16, classes=10):
        layers = nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, classes)
        super().__init__(nn.Flatten(), *layers)


class LeNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x))).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(8, outputs)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(8, outputs))

    def forward(self, x):
        h = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        h += x if self.down is None else self.down(x)
        return self.relu(h)


class ResNet18(nn.Module):
    """ResNet-18 as in torchvision, with GroupNorm: 7×7 stem of stride 2, 3×3 max-pooling, changes in place."""

    def __init__(self, width=64, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.GroupNorm(8, width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, inputs = [], width
        for stage in range(4):
            outputs = width << stage
            stages.append(nn.Sequential(Block(inputs, outputs, 2 if stage else 1), Block(outputs, outputs, 1)))
            inputs = outputs
        self.stages, self.pool, self.fc = nn.Sequential(*stages), nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, classes)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


class Small(nn.Module):
    """A small transformer: learned places, PyTorch's encoder, a causal mask that is a buffer, tied to nothing."""

    def __init__(self, vocabulary=30, length=12, width=16, classes=5, dropout=0.1):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Parameter(0.1 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout, "gelu", batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(width, classes)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x):
        h = self.tokens(x) + self.places[: x.shape[1]]
        return self.head(self.encoder(h, mask=self.mask, is_causal=True).mean(1))


class Recurrent(nn.Module):
    def __init__(self, vocabulary=20, classes=4):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, 8, padding_idx=0)
        self.gru = nn.GRU(8, 6, 2, batch_first=True, bidirectional=True, dropout=0.2)
        self.lstm, self.head = nn.LSTM(12, 5, batch_first=True), nn.Linear(5, classes)

    def forward(self, x):
        h, _ = self.gru(self.tokens(x))
        _, (h, _) = self.lstm(h)
        return self.head(h[-1])
