import torch
from gemms.linear import gemm_fp16_rcr_bias_gelutanh

device = "cuda" if torch.cuda.is_available() else "cpu"
x, weight, bias = (torch.randn(*size, dtype=torch.float16, device=device) / 8 for size in ((16, 64), (128, 64), (128,)))
y = gemm_fp16_rcr_bias_gelutanh(x, weight.T, bias=bias)
print(tuple(y.shape), y.dtype)
