import torch

from generated.fp16_rcr import gemm_fp16_rcr_bias_relu as linear

N, K = 512, 256
device = "cuda" if torch.cuda.is_available() else "cpu"
# Before the first request: requests have 1 to 16 rows, and only x may be a slice of a larger tensor.
print(linear.prepare(N, K, M=range(1, 17), unaligned=("a",)), "configurations")

weight, bias = torch.randn(N, K, device=device).half(), torch.randn(N, device=device).half()
x = torch.randn(8, K + 1, device=device).half()[:, :K]
kernel, config = linear.which(x, weight.T, bias=bias)
print(kernel, config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"])
