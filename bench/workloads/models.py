"""The networks of the bench, by name; weights are random.

Threading: plain values.
"""

import torch
import torch.nn.functional as F
from torch import nn


def convolution(inputs, outputs, size, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.one = convolution(inputs, width, 1)
        self.two = convolution(width, width, 3, stride)
        self.three = convolution(width, outputs, 1)
        self.shortcut = (nn.Identity() if inputs == outputs and stride == 1
                         else convolution(inputs, outputs, 1, stride))

    def forward(self, x):
        y = F.relu(self.one(x), inplace=True)
        y = F.relu(self.two(y), inplace=True)
        return F.relu(self.three(y) + self.shortcut(x), inplace=True)


class ResNet50(nn.Module):
    STAGES = (3, 4, 6, 3)

    def __init__(self, classes=1000):
        super().__init__()
        self.stem = convolution(3, 64, 7, 2)
        layers, inputs = [], 64
        for stage, blocks in enumerate(self.STAGES):
            width = 64 << stage
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(inputs, width, stride))
                inputs = 4 * width
        self.layers = nn.Sequential(*layers)
        self.classify = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x), inplace=True), 3, 2, 1)
        return self.classify(self.layers(x).mean((2, 3)))


class ResNet152(ResNet50):
    STAGES = (3, 8, 36, 3)


class Lstm(nn.Module):
    """Two layers of 1,024 units over 64 steps."""

    LENGTH, WIDTH = 64, 1024

    def __init__(self, classes=1000):
        super().__init__()
        self.layers = nn.LSTM(self.WIDTH, self.WIDTH, num_layers=2, batch_first=True)
        self.classify = nn.Linear(self.WIDTH, classes)

    def forward(self, x):
        return self.classify(self.layers(x)[0][:, -1])


class Bert(nn.Module):
    """BERT-base over 128 tokens: transformers' own, or where that is missing PyTorch's encoder of
    the same shape."""

    LENGTH, VOCABULARY, WIDTH, HEADS, LAYERS = 128, 30522, 768, 12, 12

    def __init__(self, classes=1000):
        super().__init__()
        self.classify = nn.Linear(self.WIDTH, classes)
        try:
            from transformers import BertConfig, BertModel
        except (ImportError, RuntimeError):  # one that does not fit this PyTorch raises the latter
            self.made_of = "torch.nn.TransformerEncoder"
            self.model = self.encoder()
        else:
            self.made_of = "transformers.BertModel"
            self.model = BertModel(BertConfig())  # its defaults are BERT-base

    def encoder(self):
        self.token = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.place = nn.Parameter(torch.zeros(self.LENGTH, self.WIDTH))
        layer = nn.TransformerEncoderLayer(self.WIDTH, self.HEADS, 4 * self.WIDTH,
                                           activation="gelu", batch_first=True)
        return nn.TransformerEncoder(layer, self.LAYERS, enable_nested_tensor=False)

    def forward(self, tokens):
        if hasattr(self, "token"):
            y = self.model(self.token(tokens) + self.place)
        else:
            y = self.model(input_ids=tokens).last_hidden_state
        return self.classify(y[:, 0])


def from_torchvision(name):
    import torchvision  # only the rows that compare networks need it

    return getattr(torchvision.models, name)()


def inception_v3():
    import torchvision

    return torchvision.models.inception_v3(aux_logits=False, init_weights=False)


def from_timm(name):
    import timm

    return timm.create_model(name, num_classes=1000)


MODELS = {
    "resnet50": ResNet50,
    "resnet152": ResNet152,
    "bert": Bert,
    "densenet121": lambda: from_torchvision("densenet121"),
    "densenet169": lambda: from_torchvision("densenet169"),
    "inceptionresnetv2": lambda: from_timm("inception_resnet_v2"),
    "inceptionv3": inception_v3,
    "mobilenetv2": lambda: from_torchvision("mobilenet_v2"),
    "vgg16": lambda: from_torchvision("vgg16"),
    "vgg19": lambda: from_torchvision("vgg19"),
    "lstm": Lstm,
}


SMALLEST = {"inceptionv3": 299, "inceptionresnetv2": 299}  # sides that they are made for


def build(name, size=224):
    """(the model, the shape of one input)"""
    size = max(size, SMALLEST.get(name, 0))
    shape = {"lstm": (Lstm.LENGTH, Lstm.WIDTH), "bert": (Bert.LENGTH,)}.get(name, (3, size, size))
    return MODELS[name](), shape


def inputs(name, batch, shape, device):
    """Random ones."""
    if name == "bert":
        return torch.randint(0, Bert.VOCABULARY, (batch, *shape), device=device)
    return torch.randn(batch, *shape, device=device)
