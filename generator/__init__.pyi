"""The names of `import generator`, which `generator/__init__.py` imports when they are used."""

from generator.emit.apply import Refused as Refused
from generator.emit.never_chosen import NeverChosen as NeverChosen
from generator.emit.rendering_call import check as check
from generator.emit.rendering_call import render as render
from generator.emit.rendering_call import variants as variants
from generator.emit.rendering_results import CheckedFolder as CheckedFolder
from generator.emit.rendering_results import CheckResult as CheckResult
from generator.emit.rendering_results import FamilyVariants as FamilyVariants
from generator.emit.rendering_results import FileDifference as FileDifference
from generator.emit.rendering_results import RenderedFolder as RenderedFolder
from generator.emit.rendering_results import RenderResult as RenderResult
from generator.emit.rendering_results import VariantsResult as VariantsResult
from generator.files.generator_error import GeneratorError as GeneratorError
from generator.files.package_data import NotInstalled as NotInstalled
from generator.files.reading import FileError as FileError
from generator.language.errors import CallError as CallError
from generator.language.errors import Mistake as Mistake
from generator.language.errors import SpecError as SpecError
from generator.language.traced_formula import formula as formula
from generator.plan.kernels import Kernel as Kernel
from generator.plan.kernels import LeftOut as LeftOut
from generator.verify.jobs import Failure as Failure
from generator.verify.jobs import Job as Job
from generator.verify.jobs import JobResult as JobResult
from generator.verify.jobs import JobState as JobState
from generator.verify.verification_run import VerificationPlan as VerificationPlan
from generator.verify.verification_run import VerifyResult as VerifyResult
from generator.verify.verification_run import verify as verify

__all__: tuple[str, ...]
__version__: str
