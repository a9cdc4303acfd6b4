import torch

from generated.fp16_rcr import gemm_fp16_rcr_bias_relu, nn


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        # The function takes matrices: the dimensions in front of the last one become rows.
        hidden = gemm_fp16_rcr_bias_relu(x.flatten(0, -2), self.up.weight.T, bias=self.up.bias)
        return self.down(hidden).view(x.shape)


device = "cuda" if torch.cuda.is_available() else "cpu"
model, x = Block(64).to(device).half(), torch.randn(2, 8, 64, device=device).half()
# Parameters require a gradient, and this family records none.
with torch.no_grad():
    expected = model.down(torch.relu(model.up(x)))
    print(nn.replace_linear(model))
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x), expected, rtol=0.01, atol=0.01)
