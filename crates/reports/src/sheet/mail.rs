//! A report as the HTML part of a mail.

use super::View;
use super::html::{TEMPLATES, shared, title};
use minijinja::{Value, context};
use takt_accounting::sheet::{Day, Figures, Part, Sheet};
use takt_model::words::amount;

/// Largest size of a mail's HTML part, in bytes. Gmail cuts a mail at 102 kB.
const MAIL_MOST: usize = 100_000;

/// Numbers of rows in the tables of a mail; the first that gives a small enough mail is used.
const MAIL_ROWS: [usize; 4] = [20, 10, 5, 0];

/// Characters of a name in a mail.
const MAIL_NAME: usize = 40;

/// Renders the report for mail programs: tables, inline styles and cells as bars. Neither Gmail nor
/// Outlook shows inline SVG, and Outlook knows neither grid, flex boxes nor CSS variables.
///
/// # Errors
/// If the template needs a value that the view does not have.
pub fn mail_page(sheet: &Sheet, view: View) -> Result<String, minijinja::Error> {
    let mut page = String::new();
    for rows in MAIL_ROWS {
        // Each try begins with the whole report, since `for_mail` counts what it leaves out.
        let (sheet, omitted) = for_mail(sheet, rows);
        page = TEMPLATES.get_template("mail.html")?.render(context! {
            omitted,
            title_of_report => title(&sheet, view),
            day_bars => day_bars(&sheet),
            month_bars => month_bars(&sheet),
            rank_bars => rank_bars(&sheet),
            model_bars => model_bars(&sheet),
            ..shared(&sheet, view)
        })?;
        if page.len() <= MAIL_MOST {
            break;
        }
    }
    // Even without rows, the last page is sent: a cut mail is better than none.
    Ok(page)
}

/// Returns the report with at most `rows` rows in each table and with short names, and the number
/// of omitted rows.
fn for_mail(sheet: &Sheet, rows: usize) -> (Sheet, usize) {
    let mut sheet = sheet.clone();
    let mut omitted = 0;
    fn cut<T>(list: &mut Vec<T>, most: usize) -> usize {
        let omitted = list.len().saturating_sub(most);
        list.truncate(most);
        omitted
    }

    omitted += cut(&mut sheet.members, rows);
    omitted += cut(&mut sheet.accounts, rows);
    omitted += cut(&mut sheet.runs, rows.min(10));
    omitted += cut(&mut sheet.lost, rows);
    omitted += cut(&mut sheet.breaches, rows);
    omitted += cut(&mut sheet.network_bound, rows);
    // Budgets and GPU models are few, and stay even in the smallest mail.
    omitted += cut(&mut sheet.budgets, rows.max(5));
    omitted += cut(&mut sheet.gpu_models, rows.max(5));
    // A period of more than a month has a bar for each of its first 31 days.
    omitted += cut(&mut sheet.days, 31);

    sheet
        .members
        .iter_mut()
        .chain(&mut sheet.accounts)
        .for_each(|member| shorten(&mut member.name));
    for run in &mut sheet.runs {
        run.name.iter_mut().for_each(shorten);
        shorten(&mut run.user);
    }
    for run in &mut sheet.lost {
        run.name.iter_mut().for_each(shorten);
        shorten(&mut run.user);
        shorten(&mut run.nodes);
    }
    for breach in &mut sheet.breaches {
        breach.name.iter_mut().for_each(shorten);
        shorten(&mut breach.user);
    }
    (sheet, omitted)
}

fn shorten(name: &mut String) {
    // By characters: a name may be cut inside of a letter otherwise.
    if let Some((at, _)) = name.char_indices().nth(MAIL_NAME) {
        name.truncate(at);
        name.push('…');
    }
}

/// Returns a part of a whole in percent, for the width of a bar.
fn width(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole).clamp(0.0, 1.0) * 100.0
    } else {
        0.0
    }
}

/// Height of the largest day's bar, in pixels.
const DAY_HEIGHT: f64 = 80.0;

fn day_bars(sheet: &Sheet) -> Vec<Value> {
    let by_gpu = sheet.days.iter().any(|day| day.gpu_hours > 0.0);
    let hours = |day: &Day| if by_gpu { day.gpu_hours } else { day.cpu_hours };
    let most = sheet.days.iter().map(hours).fold(0.0, f64::max);
    let bar = |day| {
        let height = (hours(day) / most * DAY_HEIGHT).round() as u32;
        let date = day.date.rsplit('-').next().unwrap_or_default();
        context! { day => date.trim_start_matches('0'), height }
    };
    // One day compares nothing, and no hours have no highest bar.
    if most <= 0.0 || sheet.days.len() < 2 {
        return Vec::new();
    }
    sheet.days.iter().map(bar).collect()
}

fn month_bars(sheet: &Sheet) -> Vec<Value> {
    let months: Vec<_> = sheet.before.iter().chain([&sheet.figures]).collect();
    let by_gpu = months.iter().any(|month| month.gpu_hours > 0.0);
    let hours = |month: &Figures| {
        if by_gpu {
            month.gpu_hours
        } else {
            month.cpu_hours
        }
    };

    let most = months.iter().map(|month| hours(month)).fold(0.0, f64::max);
    let bar = |month: &&Figures| {
        let wasted = if by_gpu {
            month.split_gpu_hours.wasted()
        } else {
            0.0
        };
        // The waste is a part of the bar, so it must not be longer.
        let wasted = width(wasted.min(hours(month)), most).round();
        let all = width(hours(month), most).round();
        context! {
            name => month.period.chars().take(10).collect::<String>(),
            used => all - wasted,
            wasted,
            value => amount(hours(month)),
        }
    };
    if months.len() < 2 {
        return Vec::new();
    }
    months.iter().map(bar).collect()
}

fn rank_bars(sheet: &Sheet) -> Vec<Value> {
    let rows = sheet.rank.iter().flat_map(|rank| &rank.rows);
    let most = rows.clone().map(|row| row.hours).fold(0.0, f64::max);
    rows.map(|row| {
        // Names of others are hidden where `pseudonyms` or the privacy level says so.
        let mut name = row.name.clone().unwrap_or_else(|| "somebody".to_owned());
        shorten(&mut name);
        context! {
            name => format!("{}. {name}", row.place),
            width => width(row.hours, most).round(),
            value => amount(row.hours),
            is_own => row.is_self,
        }
    })
    .collect()
}

fn model_bars(sheet: &Sheet) -> Vec<Value> {
    let models = &sheet.gpu_models;
    let most = models.iter().map(|part| part.gpu_hours).fold(0.0, f64::max);
    let bar = |part: &Part| {
        context! {
            name => part.name,
            width => width(part.gpu_hours, most).round(),
            value => amount(part.gpu_hours),
            is_own => true,
        }
    };
    if models.len() < 2 {
        return Vec::new();
    }
    models.iter().map(bar).collect()
}
