//! Credits of a run: the GPU-hours of a lost run that were given back, and the forms that give them
//! back or revoke them.

use crate::frame::{Form, FormReply, PageError, Visit};
use takt_access::{Need, Role};
use takt_accounting::{Credit, in_force};
use takt_jobs::JobRun;
use takt_model::UnixTime;
use takt_questions::{CreditOrder, CreditsQuestion};

/// Returns the credits of a run that were not revoked.
pub fn credits_of(visit: &Visit, run: &JobRun) -> Result<Vec<Credit>, PageError> {
    let ledger = visit.ask(&CreditsQuestion {
        cluster: Some(run.cluster.clone()),
    })?;
    Ok(in_force(&ledger)
        .filter(|credit| {
            // Job ids come round again.
            credit.job_id.as_ref() == Some(&run.job_id) && credit.submit == Some(run.submit)
        })
        .cloned()
        .collect())
}

/// Returns whether the viewer may give GPU-hours of a run back.
pub fn may_credit(visit: &Visit, run: &JobRun) -> bool {
    // A run that is still running may use more, and one without GPUs has nothing to give back.
    let held_gpus = run.gpus.is_some_and(|gpus| gpus > 0) && run.start.is_some();
    held_gpus && run.end.is_some() && visit.viewer.check(Need::Change(Role::Admin)).is_ok()
}

/// Gives GPU-hours back, or revokes a credit.
pub fn submit(visit: &Visit, form: &Form) -> Result<FormReply, PageError> {
    let wrong = |text: String| PageError::wrong(text).next(&visit.path, "The job");

    let number = |name: &str| -> Result<i64, PageError> {
        let text = form.required(name)?;
        let number = text.parse();
        number.map_err(|_| wrong(format!("{name} '{text}' is not a whole number.")))
    };

    let order = match form.required("do")? {
        "credit" => {
            // Without a number, all that the run held is given back.
            let gpu_hours = form.get("gpu_hours").map(|text| {
                let hours = text.parse();
                hours.map_err(|_| wrong(format!("'{text}' is not a number of GPU-hours.")))
            });
            CreditOrder {
                job_id: Some(visit.parameter("job").to_owned()),
                // The form has the submission of the run that the page shows: a requeued job has several.
                submit: Some(UnixTime(number("submit")?)),
                gpu_hours: gpu_hours.transpose()?,
                ..CreditOrder::default()
            }
        }
        "revoke" => CreditOrder {
            revokes: Some(number("credit")?),
            ..CreditOrder::default()
        },
        other => return Err(wrong(format!("The page has no action '{other}'."))),
    };

    let by = visit.viewer.user().unwrap_or(visit.viewer.role_name());
    visit.ask(&CreditOrder {
        reason: form.required("reason")?.to_owned(),
        granted_by: by.to_owned(),
        cluster: Some(visit.site.cluster.to_string()),
        ..order
    })?;
    Ok(FormReply::Redirect(visit.path.clone()))
}
